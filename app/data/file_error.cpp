#include "data/file_error.h"

#include <algorithm>

#include <remat/error.h>

namespace remat::data {

namespace {

/// As it can be shown on a terminal. `problem` may quote what a file contains.
std::string shown(std::string text) {
  for (char& byte : text) {
    if (static_cast<unsigned char>(byte) < ' ' || byte == '\x7f') byte = '?';
  }
  return text;
}

/// Of a label or a column, the beginning; cut between characters of UTF-8.
std::string shortened(const std::string& name) {
  constexpr size_t kLongest = 60;
  if (name.size() <= kLongest) return name;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80U) --end;
  return name.substr(0, end) + "...";
}

}  // namespace

void refuse_line(const std::string& path, int64_t line, const std::string& problem) {
  throw Error("[data] '" + path + "' line " + std::to_string(line) + ": " + shown(problem));
}

void refuse_file(const std::string& path, const std::string& problem) {
  throw Error("[data] '" + path + "' " + shown(problem));
}

std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "'" : ", '") + shown(shortened(names[i])) + "'";
  if (names.size() > kShown) text += ", ... (" + std::to_string(names.size()) + " in all)";
  return text;
}

}  // namespace remat::data
