// data/labelled_text.h -- texts and their labels, from files of comma-separated values or JSON Lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

/// Names of the two columns (of comma-separated values), or members of an object.
struct Columns {
  std::string text = "text";
  std::string label = "label";
};

struct LabelledText {
  std::string text;   ///< UTF-8, may be empty
  std::string label;  ///< not empty; integers in decimal digits
  int64_t line = 0;   ///< where it begins in the file, from 1
};

/// All examples of a file, at least one; the extension of `path` says what `contents` are, .csv or .jsonl. Throws
/// Error, which names the file and the line, for contents that are not UTF-8, are not of that form, lack a column, have
/// a record of another length than the header, or an empty label.
std::vector<LabelledText> read_labelled_texts(const std::string& path, std::string_view contents,
                                              const Columns& columns);

}  // namespace remat::data
