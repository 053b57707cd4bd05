// cli/different_files.h -- what is written must not take the place of what is read, or of another result.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

struct NamedPath {
  std::string name;  ///< the option's, as messages say it: "--json"
  std::string path;  ///< empty: not given
};

/// Throws UsageError where a path of `written` is a file of `read` or another of `written`, also by another path or a
/// link. Devices and pipes are no files to lose.
void check_different_files(const std::vector<NamedPath>& read, const std::vector<NamedPath>& written);

/// Throws UsageError where a path of `written` is a picture by its name, or leads to one. A folder may hold a million
/// of them: they are not compared one by one.
void check_no_picture(const std::vector<NamedPath>& written);

}  // namespace remat::cli
