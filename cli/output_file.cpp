#include "cli/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <remat/error.h>

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

// A regular file is written beside its place and then moved there; a device or a pipe can only be written to.
std::string first_path(const std::string& path) { return is_special_file(path) ? path : path + ".part"; }

[[noreturn]] void fail(const std::string& path, const std::string& option) {
  throw Error("[" + option + "] cannot write '" + path + "' (" + std::strerror(errno) + "); give another path with --" +
              option);
}

// What did not reach its place is of no use beside it.
[[noreturn]] void fail_without(const std::string& first, const std::string& path, const std::string& option) {
  const int error = errno;
  if (first != path) std::remove(first.c_str());
  errno = error;
  fail(path, option);
}

}  // namespace

bool is_special_file(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

void check_output_path(const std::string& path, const std::string& option) {
  if (path.empty()) return;
  if (fs::is_directory(path)) {
    throw Error("[" + option + "] '" + path + "' is a directory; give the path of a file in it");
  }
  const auto first = first_path(path);
  if (!std::ofstream(first, std::ios::app)) fail(path, option);
  if (first != path) fs::remove(first);
}

void write_output(const std::string& path, const std::string& text, const std::string& option) {
  if (path.empty()) return;
  const auto first = first_path(path);
  std::ofstream file(first, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail_without(first, path, option);
  if (first != path && std::rename(first.c_str(), path.c_str()) != 0) fail_without(first, path, option);
}

}  // namespace remat::cli
