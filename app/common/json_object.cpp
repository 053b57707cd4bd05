#include "common/json_object.h"

#include <utility>
#include <vector>

namespace remat::common {
namespace {

using nlohmann::json;

/// A name as messages show it: not more than the beginning, cut between characters of UTF-8.
std::string shown(const std::string& name) {
  constexpr size_t most = 60;
  if (name.size() <= most) return "'" + name + "'";
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80U) --end;
  return "'" + name.substr(0, end) + "...'";
}

/// Builds a document from the parser's events. (A callback of json::parse() would take a time that grows with the
/// square of a list's length.)
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(size_t most_nested, size_t most_values) : most_nested_(most_nested), most_values_(most_values) {}

  json take() { return std::move(root_); }

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
    if (!inserted) throw JsonProblem{"has the name " + shown(name) + " twice in one object"};
    field_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const json::exception& /*error*/) override {
    throw JsonProblem{"is no JSON at byte " + std::to_string(position)};
  }

 private:
  json* put(json value) {
    if (++values_ > most_values_) throw JsonProblem{"has more than " + std::to_string(most_values_) + " values"};
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
    if (open_.size() == most_nested_)
      throw JsonProblem{"is nested more than " + std::to_string(most_nested_) + " deep"};
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const size_t most_nested_, most_values_;
  json root_;
  std::vector<json*> open_;  // objects and arrays that have not ended; the last of each parent, so they do not move
  json* field_ = nullptr;    // for the next value, if it goes into an object
  size_t values_ = 0;
};

}  // namespace

json read_json_object(std::string_view text, size_t most_nested, size_t most_values) {
  // The parser takes a zero byte for the end of the text, and would ignore what follows it.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw JsonProblem{"has a zero byte, byte " + std::to_string(zero + 1)};
  }
  Builder builder(most_nested, most_values);
  json::sax_parse(text.begin(), text.end(), &builder);
  json root = builder.take();
  if (root.is_object()) return root;
  const std::string kind = root.type_name();
  throw JsonProblem{"is " + (root.is_null() ? kind : (root.is_array() ? "an " : "a ") + kind) + ", not an object"};
}

}  // namespace remat::common
