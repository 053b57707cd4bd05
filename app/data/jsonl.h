// data/jsonl.h -- JSON Lines: one object on each line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace remat::data {

/// Reads one object after another; lines of white space are skipped.
class JsonlReader {
 public:
  /// `path` is for messages, as is `remedy`: what to write instead of a line that is no object. `contents` must outlive
  /// the reader.
  JsonlReader(std::string path, std::string_view contents, std::string remedy);

  /// The next object; false at the end. Throws Error, which names the line, for what is no JSON object, or has a name
  /// twice.
  bool next(nlohmann::json& object);

  /// That of the last object, from 1.
  int64_t line() const { return line_; }

 private:
  std::string path_, remedy_;
  std::string_view rest_;
  int64_t line_ = 0;
};

}  // namespace remat::data
