#include "data/file_error.h"

#include <algorithm>

#include <remat/error.h>

namespace remat::data {

void refuse_line(const std::string& path, int64_t line, const std::string& problem) {
  throw Error("[data] '" + path + "' line " + std::to_string(line) + ": " + problem);
}

void refuse_file(const std::string& path, const std::string& problem) {
  throw Error("[data] '" + path + "' " + problem);
}

std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kShown) text += ", ... (" + std::to_string(names.size()) + " in all)";
  return text;
}

}  // namespace remat::data
