#include "cli/different_files.h"

#include <filesystem>

#include "cli/options.h"
#include "cli/special_file.h"

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

}  // namespace remat::cli
