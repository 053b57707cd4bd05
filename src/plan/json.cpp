#include "plan/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include <remat/error.h>

namespace remat {
namespace {

using nlohmann::json;

constexpr size_t kMostNested = 16;  // more than any document of ours: a list in an object in a list in the document
constexpr const char* kRemedy = "; docs/formats.md says what belongs there";

std::string describe(const json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= 40 ? "\"" + text + "\"" : "a string of " + std::to_string(text.size()) + " bytes";
}

/// Builds a document from the parser's events. (nlohmann/json's own documents would accept names that stand twice in an
/// object and any depth, and its callbacks take a time that grows with the square of a list's length.)
class DocumentReader final : public nlohmann::json_sax<json> {
 public:
  DocumentReader(std::string_view text, const char* document) : text_(text), place_{document} {}

  json read() {
    // The parser takes a zero byte for the end of the text, and would ignore what follows it.
    if (const size_t zero = text_.find('\0'); zero != std::string_view::npos)
      refuse("has a zero byte, byte " + std::to_string(zero + 1) + " of " + std::to_string(text_.size()));
    json::sax_parse(text_.begin(), text_.end(), this);
    if (!root_.is_object()) refuse("is " + describe(root_) + ", not an object");
    return std::move(root_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t /*size*/) override { return open(json::object()); }
  bool start_array(size_t /*size*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const auto [place, inserted] = open_.back()->get_ref<json::object_t&>().try_emplace(name);
    if (!inserted) refuse("has the field " + describe(name) + " twice in one object");
    field_ = &place->second;
    return true;
  }

  bool parse_error(size_t byte, const std::string& /*token*/, const json::exception& error) override {
    constexpr int beyond_double = 406;
    const std::string_view before = text_.substr(0, byte > 0 ? byte - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw Error("[" + std::string(place_.document) + "] " +
                (error.id == beyond_double ? "a number too large for a double" : "no JSON") + " at line " +
                std::to_string(line) + ", column " + std::to_string(column) + " (byte " + std::to_string(byte) +
                " of " + std::to_string(text_.size()) + "); the text may be damaged or cut off, have it written again");
  }

 private:
  json* put(json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    json& parent = *open_.back();
    if (parent.is_object()) return &(*field_ = std::move(value));
    return &parent.get_ref<json::array_t&>().emplace_back(std::move(value));
  }
  bool add(json value) {
    put(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == kMostNested) refuse("is nested deeper than " + std::to_string(kMostNested) + " levels");
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  [[noreturn]] void refuse(const std::string& what) const { refuse_json(place_, nullptr, what); }

  std::string_view text_;
  JsonPlace place_;
  json root_;
  std::vector<json*> open_;  // objects and arrays that have not ended; the last of each parent, so they do not move
  json* field_ = nullptr;    // for the next value, if it goes into an object
};

}  // namespace

void refuse_json(const JsonPlace& place, const char* field, const std::string& what) {
  std::string message = "[" + std::string(place.document) + "] ";
  if (place.name != nullptr) message += place.name;
  if (place.index >= 0) message += "[" + std::to_string(place.index) + "]";
  if (place.name != nullptr && field != nullptr) message += ".";
  if (field != nullptr) message += field;
  if (place.name == nullptr && field == nullptr) message += "the document";
  throw Error(message + " " + what + kRemedy);
}

json parse_document(std::string_view text, const char* document, std::string_view format, JsonVersions versions) {
  const JsonPlace place{document};
  json root = DocumentReader(text, document).read();

  // Of another version nothing else is known: it is told before other fields are missed.
  const auto actual_format = root.find("format");
  if (actual_format == root.end()) refuse_json(place, "format", "is missing");
  if (*actual_format != format)
    refuse_json(place, "format", "is " + describe(*actual_format) + ", not \"" + std::string(format) + "\"");
  const auto actual_version = root.find("version");
  if (actual_version == root.end()) refuse_json(place, "version", "is missing");
  if (!actual_version->is_number_integer() || *actual_version < versions.oldest || *actual_version > versions.newest) {
    const std::string newest = std::to_string(versions.newest);
    throw Error("[" + std::string(document) + "] version is " + describe(*actual_version) + ", and this remat reads " +
                (versions.oldest == versions.newest ? "version " + newest + " alone"
                                                    : "versions " + std::to_string(versions.oldest) + " to " + newest) +
                "; have it written by this remat");
  }
  return root;
}

JsonRecord::JsonRecord(const json& value, JsonPlace place, Fields fields, Form form)
    : json_(value), place_(place), fields_(fields) {
  const bool array = form == Form::kArray;
  if (array ? !value.is_array() : !value.is_object())
    refuse(nullptr, "is " + describe(value) + ", not an " + (array ? "array" : "object"));
  if (array && value.size() != fields.size())
    refuse(nullptr, "has " + std::to_string(value.size()) + " elements, not " + std::to_string(fields.size()));
  if (array) return;
  for (const char* field : fields) {
    if (!value.contains(field)) refuse(field, "is missing");
  }
  if (value.size() == fields.size()) return;
  for (const auto& [name, ignored] : value.items()) {
    if (std::find(fields.begin(), fields.end(), name) == fields.end())
      refuse(nullptr, "has the unknown field " + describe(name));
  }
}

const json& JsonRecord::operator[](const char* field) const {
  if (json_.is_object()) return *json_.find(field);
  const auto same = [field](const char* other) { return std::string_view(field) == other; };
  return json_[std::find_if(fields_.begin(), fields_.end(), same) - fields_.begin()];
}

bool JsonRecord::has(const char* field) const {
  return std::ranges::any_of(fields_, [field](const char* other) { return std::string_view(field) == other; });
}

int64_t JsonRecord::integer(const char* field, int64_t least, int64_t most) const {
  const json& value = (*this)[field];
  if (!value.is_number_integer()) refuse(field, "is " + describe(value) + ", not an integer");
  const bool fits = !value.is_number_unsigned() || std::in_range<int64_t>(value.get<uint64_t>());
  const auto number = value.get<int64_t>();
  if (!fits || number < least || number > most)
    refuse(field, "is " + describe(value) + ", not between " + std::to_string(least) + " and " + std::to_string(most));
  return number;
}

int32_t JsonRecord::index(const char* field) const {
  return static_cast<int32_t>(integer(field, -1, std::numeric_limits<int32_t>::max()));
}

double JsonRecord::seconds(const char* field) const {
  const json& value = (*this)[field];
  if (!value.is_number()) refuse(field, "is " + describe(value) + ", not a number");
  const auto number = value.get<double>();
  if (number < 0) refuse(field, "is " + describe(value) + ", not a time: it is negative");
  return number;
}

bool JsonRecord::flag(const char* field) const {
  const json& value = (*this)[field];
  if (!value.is_boolean()) refuse(field, "is " + describe(value) + ", not true or false");
  return value.get<bool>();
}

const std::string& JsonRecord::text(const char* field) const {
  const json& value = (*this)[field];
  if (!value.is_string()) refuse(field, "is " + describe(value) + ", not a string");
  return value.get_ref<const std::string&>();
}

const json& JsonRecord::list(const char* field) const {
  const json& value = (*this)[field];
  if (!value.is_array()) refuse(field, "is " + describe(value) + ", not an array");
  return value;
}

std::vector<int32_t> JsonRecord::indexes(const char* field) const {
  const json& numbers = list(field);
  std::vector<int32_t> result;
  result.reserve(numbers.size());
  for (const json& number : numbers) {
    if (!number.is_number_integer()) refuse(field, "has " + describe(number) + ", not an integer");
    const auto index = number.get<int64_t>();
    if (!std::in_range<int32_t>(index) || index < 0)  // beyond int64: negative
      refuse(field,
             "has " + describe(number) + ", not between 0 and " + std::to_string(std::numeric_limits<int32_t>::max()));
    result.push_back(static_cast<int32_t>(index));
  }
  return result;
}

FormCosts JsonRecord::form_costs(const char* field) const {
  constexpr const char* kNames[] = {"out_compute", "out_copy", "in_compute", "in_copy"};
  const JsonRecord costs((*this)[field], {place_.document, field}, kNames);
  return {.out = {costs.seconds("out_compute"), costs.seconds("out_copy")},
          .in = {costs.seconds("in_compute"), costs.seconds("in_copy")}};
}

void append_json(std::string& out, int64_t number) {
  std::array<char, 24> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
}

void append_json(std::string& out, double number) {
  std::array<char, 32> text{};
  const std::string_view digits(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
  out += digits;
  // Read as an integer, -0 would lose its sign.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_json(std::string& out, const std::vector<int32_t>& numbers) {
  constexpr size_t per_line = 20;
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += i % per_line == 0 ? ",\n   " : ", ";
    append_json(out, int64_t{numbers[i]});
  }
  out += ']';
}

void append_json(std::string& out, const FormCosts& costs) {
  append_json(out, "{\"out_compute\": ", costs.out.compute);
  append_json(out, ", \"out_copy\": ", costs.out.copy);
  append_json(out, ", \"in_compute\": ", costs.in.compute);
  append_json(out, ", \"in_copy\": ", costs.in.copy);
  out += '}';
}

void append_json(std::string& out, const std::string& text, const JsonPlace& place, const char* field) {
  try {
    out += json(text).dump();
  } catch (const json::type_error&) {
    refuse_json(place, field, "is not UTF-8");
  }
}

std::string hexadecimal(uint64_t number) {
  std::string digits(16, '0');
  for (size_t i = digits.size(); i-- > 0; number >>= 4U) digits[i] = "0123456789abcdef"[number & 15U];
  return digits;
}

}  // namespace remat
