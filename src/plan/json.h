// src/plan/json.h -- reading and writing JSON strictly: what the formats of graphs and plans share.
//
// A file may come from anywhere. Whatever is in it, reading ends with a value or an Error, needs memory in proportion
// to the text, and does not recurse.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace remat {

/// Where in a document an object stands, for messages: `operators[12]`.
struct JsonPlace {
  const char* document;        ///< "graph": messages begin with it
  const char* name = nullptr;  ///< "operators"; null: the document itself
  int64_t index = -1;          ///< 12; -1: it is no list
};

/// Throws Error: "[graph] operators[12].seconds is ...".
[[noreturn]] void refuse_json(const JsonPlace& place, const char* field, const std::string& what);

/// Parses the whole of `text`, which must be an object whose "format" and "version" are these.
nlohmann::json parse_document(std::string_view text, const char* document, std::string_view format, int version);

/// An object that has exactly the fields announced, or an array with one element for each of them, in that order.
/// Every reader below throws Error on what is missing, of another type or out of range. Refers to `value`.
class JsonRecord {
 public:
  enum class Form : uint8_t { kObject, kArray };
  using Fields = std::span<const char* const>;

  JsonRecord(const nlohmann::json& value, JsonPlace place, Fields fields, Form form = Form::kObject);

  int64_t integer(const char* field, int64_t least, int64_t most) const;
  int64_t bytes(const char* field) const { return integer(field, 0, std::numeric_limits<int64_t>::max()); }
  int32_t index(const char* field) const;  ///< or -1
  double seconds(const char* field) const;
  bool flag(const char* field) const;
  const std::string& text(const char* field) const;
  std::vector<int32_t> indexes(const char* field) const;
  const nlohmann::json& list(const char* field) const;

  /// Any field, unread.
  const nlohmann::json& operator[](const char* field) const;
  [[noreturn]] void refuse(const char* field, const std::string& what) const { refuse_json(place_, field, what); }

 private:
  const nlohmann::json& json_;
  JsonPlace place_;
  Fields fields_;
};

/// Appends one JSON value. Doubles, which must be finite, read back with the same bits.
void append_json(std::string& out, int64_t number);
void append_json(std::string& out, double number);
void append_json(std::string& out, const std::vector<int32_t>& numbers);
/// Throws Error where `text` is not UTF-8.
void append_json(std::string& out, const std::string& text, const JsonPlace& place, const char* field);

/// 16 digits: numbers in JSON are doubles to many programs and lose bits.
std::string hexadecimal(uint64_t number);

}  // namespace remat
