// tests/tiers/open_file.h -- the descriptor of an unnamed file, to break it from outside.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace remat::test {

/// Of the file that this process has open in `directory`.
inline int descriptor_in(const std::filesystem::path& directory) {
  const auto begin = std::filesystem::canonical(directory).string() + "/";
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor that this loop reads
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind(begin, 0) == 0) return std::stoi(entry.path().filename().string());
  }
  throw std::runtime_error("no file is open in " + begin);
}

}  // namespace remat::test
