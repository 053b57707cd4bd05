// chat/values.h -- values of chat templates, and what filters, tests and methods make of them, as in Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace remat::chat {

/// Of a variable, or of a part of one; discarded where there is none (Jinja's undefined). Of JSON's binary values,
/// which no conversation has: those with a subtype are namespaces, by its number, the others functions.
using Value = nlohmann::json;

inline Value undefined() { return Value(Value::value_t::discarded); }

/// Why an operation has no result; what calls it knows the line.
struct ValueProblem {
  std::string text;
};

/// What a rendering may make, texts and values together, in bytes; and so what any of them can have.
constexpr int64_t kMostBytes = int64_t{256} << 20;
/// Throws ValueProblem where it is more than that.
void check_bytes(int64_t bytes);
/// What a value takes, roughly.
int64_t bytes_of(const Value& value);

/// "a string", "none", "undefined": for messages.
std::string kind_of(const Value& value);

bool holds(const Value& value);
bool equal(const Value& a, const Value& b);
/// As Python's str(). Throws ValueProblem for lists, mappings and fractions, whose texts are not known here.
std::string text_of(const Value& value);

Value binary(std::string_view op, const Value& a, const Value& b);
/// The part of a list or mapping, undefined where there is none; lives as long as `of`.
const Value& part(const Value& of, const Value& index);
Value slice(const Value& of, const Value& begin, const Value& end, const Value& step);

Value filter(std::string_view name, const Value& value, const std::vector<Value>& arguments);
bool test(std::string_view name, const Value& value, const std::vector<Value>& arguments);
Value method(std::string_view name, const Value& of, const std::vector<Value>& arguments);

}  // namespace remat::chat
