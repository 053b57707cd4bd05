#include "chat/values.h"

#include <algorithm>

#include "tokenizers/unicode.h"

namespace remat::chat {
namespace {

[[noreturn]] void fail(const std::string& what) { throw ValueProblem{what}; }

bool is_undefined(const Value& value) { return value.is_discarded(); }

bool contains(const Value& in, const Value& what) {
  if (is_undefined(in)) return false;
  if (in.is_string() && what.is_string()) {
    return in.get_ref<const std::string&>().find(what.get_ref<const std::string&>()) != std::string::npos;
  }
  if (in.is_object()) return what.is_string() && in.contains(what.get_ref<const std::string&>());
  if (in.is_array()) return std::ranges::any_of(in, [&](const Value& element) { return equal(element, what); });
  fail("'in' is not known for " + kind_of(what) + " and " + kind_of(in));
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// Of numbers that texts of templates can be about; larger ones could overflow.
int64_t small(const Value& value) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto number = value.get<int64_t>();
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMost};
  if (beyond || number > kMost || number < -kMost) fail("a number is too large");
  return number;
}

Value integers(std::string_view op, int64_t a, int64_t b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (b == 0) fail("a division by 0");
  return op == "//" ? floor_divide(a, b) : a - b * floor_divide(a, b);
}

template <class T>
bool compare(std::string_view op, const T& a, const T& b) {
  return op == "<" ? a < b : op == ">" ? a > b : op == "<=" ? a <= b : a >= b;
}

}  // namespace

void check_bytes(int64_t bytes) {
  if (bytes > kMostBytes) fail("it makes more than " + std::to_string(kMostBytes >> 20) + " MiB of text and values");
}

int64_t bytes_of(const Value& value) {
  int64_t bytes = 48;
  if (value.is_string()) bytes += static_cast<int64_t>(value.get_ref<const std::string&>().size());
  if (value.is_array()) {
    for (const Value& element : value) bytes += bytes_of(element);
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_ref<const Value::object_t&>())
      bytes += static_cast<int64_t>(name.size()) + 48 + bytes_of(member);
  }
  return bytes;
}

std::string kind_of(const Value& value) {
  if (is_undefined(value)) return "undefined";
  if (value.is_null()) return "none";
  if (value.is_binary()) return value.get_binary().has_subtype() ? "a namespace" : "a function";
  return std::string("a value of type ") + value.type_name();
}

bool holds(const Value& value) {
  if (is_undefined(value) || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.empty();
}

bool equal(const Value& a, const Value& b) {
  if (is_undefined(a) || is_undefined(b)) return is_undefined(a) && is_undefined(b);
  if (a.is_boolean() && b.is_number_integer()) return (a.get<bool>() ? 1 : 0) == b;
  if (b.is_boolean() && a.is_number_integer()) return equal(b, a);
  return a == b;
}

std::string text_of(const Value& value) {
  if (value.is_string()) return value.get<std::string>();
  if (is_undefined(value)) return "";
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return value.dump();
  fail("the text of " + kind_of(value) + " is not known here");
}

Value binary(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "~") return text_of(a) + text_of(b);
  const bool order = op[0] == '<' || op[0] == '>';
  if (a.is_number_integer() && b.is_number_integer()) {
    return order ? Value(compare(op, small(a), small(b))) : integers(op, small(a), small(b));
  }
  if (a.is_string() && b.is_string() && (order || op == "+")) {
    const auto &left = a.get_ref<const std::string&>(), &right = b.get_ref<const std::string&>();
    return order ? Value(compare(op, left, right)) : Value(left + right);
  }
  if (a.is_array() && b.is_array() && op == "+") {
    Value joined = a;
    joined.insert(joined.end(), b.begin(), b.end());
    return joined;
  }
  fail("'" + std::string(op) + "' is not known for " + kind_of(a) + " and " + kind_of(b));
}

const Value& part(const Value& of, const Value& index) {
  static const Value none = undefined();
  if (of.is_object()) {
    const auto found = index.is_string() ? of.find(index.get_ref<const std::string&>()) : of.end();
    return found == of.end() ? none : *found;
  }
  if (of.is_array()) {
    if (!index.is_number_integer()) return none;
    const auto size = static_cast<int64_t>(of.size());
    const int64_t place = small(index) < 0 ? small(index) + size : small(index);
    return place >= 0 && place < size ? of[static_cast<size_t>(place)] : none;
  }
  fail("a part of " + kind_of(of) + " is not known here");
}

Value slice(const Value& of, const Value& begin, const Value& end, const Value& step) {
  if (!of.is_array()) fail("a slice of " + kind_of(of) + " is not known here");
  for (const Value* part : {&begin, &end, &step}) {
    if (!part->is_null() && !part->is_number_integer()) fail("a slice has " + kind_of(*part) + " as a place");
  }
  const auto size = static_cast<int64_t>(of.size());
  const int64_t by = step.is_null() ? 1 : small(step);
  if (by == 0) fail("a slice has the step 0");
  const auto place = [&](const Value& given, int64_t otherwise) {
    if (given.is_null()) return otherwise;
    const int64_t from_begin = small(given) < 0 ? small(given) + size : small(given);
    return by > 0 ? std::clamp<int64_t>(from_begin, 0, size) : std::clamp<int64_t>(from_begin, -1, size - 1);
  };
  const int64_t first = place(begin, by > 0 ? 0 : size - 1), last = place(end, by > 0 ? size : -1);
  Value result = Value::array();
  for (int64_t i = first; by > 0 ? i < last : i > last; i += by) result.push_back(of[static_cast<size_t>(i)]);
  return result;
}

}  // namespace remat::chat
