#include "cli/help_text.h"

#include <algorithm>
#include <sstream>

namespace remat::cli {
namespace {

constexpr size_t kOptionIndent = 2;  ///< before an option's name; what it is for stands two columns and more behind it

/// Where the text of a line continues.
size_t hanging_indent(const std::string& line) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  if (first > kOptionIndent) return first + 2;  // an item of a list in an option's text
  const size_t gap = line.find("  ", first);
  if (first < kOptionIndent || gap == std::string::npos) return first;
  return std::min(line.find_first_not_of(' ', gap), line.size());
}

std::string wrapped_line(std::string line, size_t width) {
  const size_t indent = std::min(hanging_indent(line), width * 2 / 3);
  std::string text;
  size_t begin = indent;  // before it there is no word to cut at
  while (line.size() > width) {
    size_t cut = line.rfind(' ', width);
    if (cut == std::string::npos || cut <= begin) cut = line.find(' ', width);
    if (cut == std::string::npos) break;
    text += line.substr(0, line.find_last_not_of(' ', cut) + 1) + '\n';
    line = std::string(indent, ' ') + line.substr(cut + 1);
  }
  return text + line;
}

}  // namespace

std::string wrapped_help(const std::string& page, size_t width) {
  std::istringstream lines(page);
  std::string text;
  for (std::string line; std::getline(lines, line);) text += wrapped_line(line, width) + '\n';
  return text;
}

}  // namespace remat::cli
