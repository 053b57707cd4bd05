// tests/support/system_files.h -- files of /proc and /sys that say what a test wants.
#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace remat::test {

class SystemFiles {
 public:
  SystemFiles() {
    static std::atomic<int> count = 0;
    root_ = std::filesystem::temp_directory_path() /
            ("remat_system_" + std::to_string(getpid()) + "_" + std::to_string(++count));
    std::filesystem::create_directories(root_);
  }
  ~SystemFiles() {
    if (used_) unsetenv("REMAT_SYSTEM_ROOT");
    std::filesystem::remove_all(root_);
  }
  SystemFiles(const SystemFiles&) = delete;
  SystemFiles& operator=(const SystemFiles&) = delete;

  const std::filesystem::path& root() const { return root_; }
  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  /// Sessions read these files, for as long as the object lives.
  void use() {
    used_ = true;
    setenv("REMAT_SYSTEM_ROOT", root_.c_str(), 1);
  }
  /// So many bytes are left in the group of the process.
  void leave(int64_t bytes) const {
    constexpr int64_t kLimit = int64_t{1} << 40;
    write("proc/self/cgroup", "0::/job\n");
    write("sys/fs/cgroup/job/memory.max", std::to_string(kLimit) + "\n");
    write("sys/fs/cgroup/job/memory.current", std::to_string(kLimit - bytes) + "\n");
  }

 private:
  std::filesystem::path root_;
  bool used_ = false;
};

}  // namespace remat::test
