// src/plan/json.h -- strict reading and writing of JSON, for the formats of graphs and plans.
//
// Files are untrusted. For any text, reading ends with a value or an Error, takes memory in proportion to the text, and
// does not recurse. nlohmann/json parses; its own documents would accept duplicate names and any depth.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <remat/graph.h>

namespace remat {

/// The place of an object in a document, for messages: `operators[12]`.
struct JsonPlace {
  const char* document;        ///< "graph": messages begin with it
  const char* name = nullptr;  ///< "operators"; null: the document itself
  int64_t index = -1;          ///< 12; -1: `name` is not a list
};

/// Throws Error: "[graph] operators[12].seconds is ...".
[[noreturn]] void refuse_json(const JsonPlace& place, const char* field, const std::string& what);

/// The versions of a format that are read, both ends included.
struct JsonVersions {
  int oldest = 0, newest = 0;
};
/// Parses the whole of `text`, which must be an object with this "format" and one of these as its "version".
nlohmann::json parse_document(std::string_view text, const char* document, std::string_view format,
                              JsonVersions versions);

/// A JSON object with exactly the given fields, or an array with one element for each field, in their order. The
/// functions throw Error where an element is missing, of another type or out of range. Refers to `value`.
class JsonRecord {
 public:
  enum class Form : uint8_t { kObject, kArray };
  using Fields = std::span<const char* const>;

  JsonRecord(const nlohmann::json& value, JsonPlace place, Fields fields, Form form = Form::kObject);

  bool has(const char* field) const;  ///< is it among the fields?
  int64_t integer(const char* field, int64_t least, int64_t most) const;
  int64_t bytes(const char* field) const { return integer(field, 0, std::numeric_limits<int64_t>::max()); }
  int32_t index(const char* field) const;  ///< or -1
  double seconds(const char* field) const;
  bool flag(const char* field) const;
  const std::string& text(const char* field) const;
  std::vector<int32_t> indexes(const char* field) const;
  const nlohmann::json& list(const char* field) const;
  /// An object with the names of FormCosts: "out_compute", "out_copy", "in_compute", "in_copy".
  FormCosts form_costs(const char* field) const;

  /// The JSON value of any field.
  const nlohmann::json& operator[](const char* field) const;
  [[noreturn]] void refuse(const char* field, const std::string& what) const { refuse_json(place_, field, what); }

 private:
  const nlohmann::json& json_;
  JsonPlace place_;
  Fields fields_;
};

/// Appends one JSON value. Doubles must be finite; the text reads back as the same bits.
void append_json(std::string& out, int64_t number);
void append_json(std::string& out, double number);
void append_json(std::string& out, const std::vector<int32_t>& numbers);
/// Appends `before`, which leads up to the value, and the value.
template <class Number>
void append_json(std::string& out, const char* before, const Number& number) {
  out += before;
  append_json(out, number);
}
void append_json(std::string& out, const FormCosts& costs);
/// Throws Error where `text` is not UTF-8.
void append_json(std::string& out, const std::string& text, const JsonPlace& place, const char* field);

/// 16 hexadecimal digits, for JSON strings: many programs read JSON numbers as doubles, which lose bits.
std::string hexadecimal(uint64_t number);

}  // namespace remat
