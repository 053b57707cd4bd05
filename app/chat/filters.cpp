// What is done to values by name: filters, tests, methods.
#include <algorithm>

#include "chat/values.h"
#include "tokenizers/unicode.h"

namespace remat::chat {
namespace {

using Arguments = std::vector<Value>;

[[noreturn]] void fail(const std::string& what) { throw ValueProblem{what}; }

void check_count(std::string_view name, const Arguments& arguments, size_t least, size_t most) {
  if (arguments.size() < least || arguments.size() > most)
    fail("'" + std::string(name) + "' with " + std::to_string(arguments.size()) + " arguments is not known here");
}

const std::string& string_of(std::string_view name, const Value& value) {
  if (!value.is_string()) fail("'" + std::string(name) + "' is not known for " + kind_of(value));
  return value.get_ref<const std::string&>();
}

/// As Python's str.isspace() has it.
bool is_space(char32_t character) {
  return tokenizers::is_space(character) || (character >= 0x1c && character <= 0x1f);
}

/// Without the characters at its ends that are among `characters`, or are white space where that is null.
std::string strip(std::string_view text, bool left, bool right, const std::string* characters) {
  const auto goes = [&](char32_t character) {
    if (characters == nullptr) return is_space(character);
    for (size_t at = 0; at < characters->size();) {
      if (tokenizers::next_character(*characters, at) == character) return true;
    }
    return false;
  };
  size_t begin = 0, end = 0;
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    if (goes(tokenizers::next_character(text, at))) continue;
    if (!any) begin = before;
    any = true;
    end = at;
  }
  if (!any) return left || right ? "" : std::string(text);
  return std::string(text.substr(left ? begin : 0, (right ? end : text.size()) - (left ? begin : 0)));
}

std::string in_case(std::string_view name, const std::string& text) {
  std::string result = text;
  for (char& c : result) {
    if (static_cast<unsigned char>(c) >= 0x80) fail("'" + std::string(name) + "' is known for ASCII alone");
    if (name == "upper" && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (name == "lower" && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string replace(const std::string& text, const std::string& what, const std::string& by) {
  if (what.empty()) fail("'replace' of nothing is not known here");
  std::string result;
  size_t at = 0;
  for (size_t found = 0; (found = text.find(what, at)) != std::string::npos; at = found + what.size()) {
    check_bytes(static_cast<int64_t>(result.size() + by.size()));
    result += text.substr(at, found - at) + by;
  }
  return result + text.substr(at);
}

Value split(const std::string& text, const std::string& separator) {
  if (separator.empty()) fail("'split' at nothing is not known here");
  Value parts = Value::array();
  size_t at = 0;
  for (size_t found = 0; (found = text.find(separator, at)) != std::string::npos; at = found + separator.size()) {
    check_bytes(static_cast<int64_t>(parts.size() + 1) * bytes_of(""));
    parts.push_back(text.substr(at, found - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

int64_t length(const Value& value) {
  if (value.is_discarded()) return 0;
  if (value.is_array() || value.is_object()) return static_cast<int64_t>(value.size());
  const std::string& text = string_of("length", value);
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

Value join(const Value& list, const std::string& separator) {
  if (!list.is_array()) fail("'join' is not known for " + kind_of(list));
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    check_bytes(static_cast<int64_t>(text.size() + separator.size()));
    text += (i == 0 ? "" : separator) + text_of(list[i]);
  }
  return text;
}

/// Of "a.b.0" the part "a" of a value, the part "b" of that, and its first one.
const Value& attribute_of(const Value& of, const Value& path) {
  if (!path.is_string()) return part(of, path);
  const Value names = split(path.get_ref<const std::string&>(), ".");
  const Value* found = &of;
  for (const Value& name : names) {
    const auto& digits = name.get_ref<const std::string&>();
    const bool number =
        !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos;
    found = &part(*found, number ? Value(std::stoll(digits)) : name);
  }
  return *found;
}

/// Those of a list whose attribute passes a test, or does not.
Value select(const Value& list, bool wanted, const Arguments& arguments) {
  if (!list.is_array()) fail("'selectattr' is not known for " + kind_of(list));
  Value result = Value::array();
  for (const Value& element : list) {
    const Value& attribute = attribute_of(element, arguments[0]);
    const bool passes = arguments.size() == 1 ? holds(attribute)
                                              : test(string_of("selectattr", arguments[1]), attribute,
                                                     Arguments(arguments.begin() + 2, arguments.end()));
    if (passes == wanted) result.push_back(element);
  }
  return result;
}

}  // namespace

Value filter(std::string_view name, const Value& value, const Arguments& arguments) {
  if (name == "trim") {
    check_count(name, arguments, 0, 1);
    return strip(text_of(value), true, true, arguments.empty() ? nullptr : &string_of(name, arguments[0]));
  }
  if (name == "default" || name == "d") {
    check_count(name, arguments, 0, 2);
    const bool missing = value.is_discarded() || (arguments.size() > 1 && holds(arguments[1]) && !holds(value));
    return !missing ? value : arguments.empty() ? Value("") : arguments[0];
  }
  if (name == "join" || name == "replace") {
    check_count(name, arguments, name == "join" ? 0 : 2, name == "join" ? 1 : 2);
    if (name == "join") return join(value, arguments.empty() ? "" : string_of(name, arguments[0]));
    return replace(text_of(value), string_of(name, arguments[0]), string_of(name, arguments[1]));
  }
  if (name == "selectattr" || name == "rejectattr") {
    check_count(name, arguments, 1, 3);
    return select(value, name == "selectattr", arguments);
  }
  if (name == "length" || name == "count" || name == "upper" || name == "lower" || name == "string" || name == "safe" ||
      name == "first" || name == "last" || name == "list") {
    check_count(name, arguments, 0, 0);
    if (name == "length" || name == "count") return length(value);
    if (name == "upper" || name == "lower") return in_case(name, text_of(value));
    if (name == "string") return text_of(value);
    if (name == "safe") return value;
    if (!value.is_array()) fail("'" + std::string(name) + "' is not known for " + kind_of(value));
    return name == "list" ? value : value.empty() ? undefined() : name == "first" ? value.front() : value.back();
  }
  fail("the filter '" + std::string(name) + "' is not known here");
}

bool test(std::string_view name, const Value& value, const Arguments& arguments) {
  const bool compares = name == "equalto" || name == "eq" || name == "==" || name == "ne" || name == "in";
  check_count(name, arguments, compares ? 1 : 0, compares ? 1 : 0);
  if (name == "ne") return !equal(value, arguments[0]);
  if (name == "in") return holds(binary("in", value, arguments[0]));
  if (compares) return equal(value, arguments[0]);
  if (name == "defined") return !value.is_discarded();
  if (name == "undefined") return value.is_discarded();
  if (name == "none") return value.is_null();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_object();
  if (name == "iterable") return value.is_discarded() || value.is_string() || value.is_structured();
  if (name == "sequence") return value.is_discarded() || value.is_string() || value.is_structured();
  if (name == "boolean") return value.is_boolean();
  if (name == "true" || name == "false") return value.is_boolean() && value.get<bool>() == (name == "true");
  if (name == "integer") return value.is_number_integer();
  if (name == "number") return value.is_number() || value.is_boolean();
  fail("the test '" + std::string(name) + "' is not known here");
}

Value method(std::string_view name, const Value& of, const Arguments& arguments) {
  if (of.is_object() && name == "get") {
    check_count(name, arguments, 1, 2);
    const Value& found = part(of, arguments[0]);
    return !found.is_discarded() ? found : arguments.size() > 1 ? arguments[1] : Value();
  }
  if (!of.is_string()) fail("the method '" + std::string(name) + "' of " + kind_of(of) + " is not known here");
  const auto& text = of.get_ref<const std::string&>();
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    check_count(name, arguments, 0, 1);
    return strip(text, name != "rstrip", name != "lstrip",
                 arguments.empty() || arguments[0].is_null() ? nullptr : &string_of(name, arguments[0]));
  }
  if (name == "upper" || name == "lower") {
    check_count(name, arguments, 0, 0);
    return in_case(name, text);
  }
  if (name == "startswith" || name == "endswith" || name == "split") {
    check_count(name, arguments, 1, 1);
    const std::string& other = string_of(name, arguments[0]);
    return name == "split" ? split(text, other)
                           : Value(name == "endswith" ? text.ends_with(other) : text.starts_with(other));
  }
  if (name == "replace") {
    check_count(name, arguments, 2, 2);
    return replace(text, string_of(name, arguments[0]), string_of(name, arguments[1]));
  }
  fail("the method '" + std::string(name) + "' of a string is not known here");
}

}  // namespace remat::chat
