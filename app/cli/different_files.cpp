#include "cli/different_files.h"

#include <filesystem>

#include "cli/special_file.h"
#include "cli/wrong_usage.h"
#include "data/decode_picture.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

// The file that a path stands for; empty for what is no file to lose, as /dev/null.
std::string file_of(const std::string& path) {
  if (path.empty() || is_special_file(path)) return {};
  std::error_code ignored;
  return fs::weakly_canonical(fs::absolute(follow_links(path)), ignored).string();
}

}  // namespace

void check_different_files(const std::vector<NamedPath>& read, const std::vector<NamedPath>& written) {
  std::vector<NamedPath> before = read;
  for (const NamedPath& result : written) {
    const auto file = file_of(result.path);
    if (file.empty()) continue;
    for (const NamedPath& other : before) {
      if (file != file_of(other.path)) continue;
      throw UsageError("[options] " + other.name + " and " + result.name + " are the same file '" + result.path +
                       "'; give another path for one of them");
    }
    before.push_back(result);
  }
}

void check_no_picture(const std::vector<NamedPath>& written) {
  for (const auto& result : written) {
    std::error_code error;
    const auto file = follow_links(result.path);
    if (!data::has_picture_name(result.path) && !data::has_picture_name(file)) continue;
    if (!fs::exists(file, error)) continue;
    throw UsageError("[options] " + result.name + " '" + result.path + "' is a picture; give another path");
  }
}

}  // namespace remat::cli
