// src/util/json_object.h -- JSON of files that nobody vouches for.
//
// For any text, reading ends with a value or what its reader throws, takes time and memory in proportion to the text,
// and does not recurse. nlohmann/json parses; its own documents would accept names that stand twice in an object and
// any depth, and its callbacks take a time that grows with the square of a list's length.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace remat {

/// What a document may have, and what becomes of one that has more. Every refusal throws.
class JsonReader {
 public:
  /// `most_nested`: objects and arrays within each other. `most_values`: in all.
  explicit JsonReader(size_t most_nested, size_t most_values = std::numeric_limits<size_t>::max())
      : most_nested_(most_nested), most_values_(most_values) {}
  virtual ~JsonReader() = default;
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  /// Parses the whole of `text`, which must be an object.
  nlohmann::json read(std::string_view text);

  size_t most_nested() const { return most_nested_; }
  size_t most_values() const { return most_values_; }

  // Bytes count from 1.

  virtual void refuse_syntax(size_t byte, const nlohmann::json::exception& error) = 0;
  /// The parser takes a zero byte for the end of the text, and would ignore what follows it.
  virtual void refuse_zero_byte(size_t byte) = 0;
  virtual void refuse_name_twice(const std::string& name) = 0;
  virtual void refuse_nesting() = 0;
  virtual void refuse_count() = 0;
  /// The document is `root`, no object.
  virtual void refuse_root(const nlohmann::json& root) = 0;

 private:
  const size_t most_nested_, most_values_;
};

}  // namespace remat
