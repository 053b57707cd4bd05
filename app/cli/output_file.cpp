#include "cli/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <remat/error.h>

#include "cli/replacement_file.h"
#include "cli/special_file.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& option) {
  throw Error("[" + option + "] cannot write '" + path + "' (" + std::strerror(errno) + "); give another path with --" +
              option);
}

}  // namespace

void check_output_path(const std::string& path, const std::string& option) {
  if (path.empty()) return;
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    throw Error("[" + option + "] '" + path + "' is a directory; give the path of a file in it");
  }
  if (is_special_file(path) ? !can_write_special_file(path) : !ReplacementFile().open(path)) fail(path, option);
}

void write_output(const std::string& path, const std::string& text, const std::string& option) {
  if (path.empty()) return;
  if (is_special_file(path)) {
    if (!write_special_file(path, text)) fail(path, option);
    return;
  }
  ReplacementFile file;
  if (!file.open(path) || !file.write(text.data(), text.size()) || !file.commit()) fail(path, option);
}

}  // namespace remat::cli
