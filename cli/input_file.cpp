#include "cli/input_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

std::string read_input(const std::string& path, const InputKind& kind) {
  const auto fail = [&](const std::string& problem) {
    throw Error("[" + kind.what + "] " + problem + "; " + kind.remedy);
  };
  const std::string most = "more than " + format_exact_bytes(kind.most_bytes);
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) fail("'" + path + "' is a directory");
  if (fs::is_character_file(status) || fs::is_block_file(status)) fail("'" + path + "' is a device, not a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read '" + path + "' (" + std::strerror(errno) + ")");
  std::string text;
  if (const auto size = fs::file_size(path, error); !error && fs::is_regular_file(status)) {
    const auto bytes = static_cast<int64_t>(size);
    if (bytes > kind.most_bytes) fail("'" + path + "' has " + format_exact_bytes(bytes) + ", " + most);
    try {
      text.reserve(size);
    } catch (const std::exception&) {
      fail("'" + path + "' has " + format_exact_bytes(bytes) + ", more than there is memory for");
    }
  }
  // Pipes and files of /proc do not say beforehand how much there is.
  std::vector<char> piece(kPieceBytes);
  const std::string too_long = "'" + path + "' has " + most;
  while (file.read(piece.data(), kPieceBytes), file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(text.size()) > kind.most_bytes) fail(too_long);
  }
  if (file.bad()) fail("reading '" + path + "' failed (" + std::strerror(errno) + ")");
  return text;
}

}  // namespace remat::cli
