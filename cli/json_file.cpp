#include "cli/json_file.h"

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
std::string first_path(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) ? path : path + ".part";
}

[[noreturn]] void fail(const std::string& path) {
  throw Error("[json] cannot write '" + path + "' (" + std::strerror(errno) + "); give another path with --json");
}

}  // namespace

void check_json_path(const std::string& path) {
  if (path.empty()) return;
  if (fs::is_directory(path)) throw Error("[json] '" + path + "' is a directory; give the path of a file in it");
  const auto first = first_path(path);
  if (!std::ofstream(first, std::ios::app)) fail(path);
  if (first != path) fs::remove(first);
}

void write_json(const std::string& path, const nlohmann::json& value) {
  if (path.empty()) return;
  const auto first = first_path(path);
  std::ofstream file(first);
  file << value.dump(1) << '\n';
  file.close();
  if (!file) {
    const int error = errno;
    if (first != path) std::remove(first.c_str());
    errno = error;
    fail(path);
  }
  if (first != path && std::rename(first.c_str(), path.c_str()) != 0) fail(path);
}

}  // namespace remat::cli
