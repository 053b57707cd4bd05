#include "util/json_object.h"

#include <utility>
#include <vector>

namespace remat {
namespace {

using nlohmann::json;

/// Builds a document from the parser's events.
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(JsonReader& reader) : reader_(reader) {}

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
    if (!inserted) reader_.refuse_name_twice(name);
    field_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const json::exception& error) override {
    reader_.refuse_syntax(position, error);
    return false;
  }

 private:
  json* put(json value) {
    if (++values_ > reader_.most_values()) reader_.refuse_count();
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
    if (open_.size() == reader_.most_nested()) reader_.refuse_nesting();
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonReader& reader_;
  json root_;
  std::vector<json*> open_;  // objects and arrays that have not ended; the last of each parent, so they do not move
  json* field_ = nullptr;    // for the next value, if it goes into an object
  size_t values_ = 0;
};

}  // namespace

json JsonReader::read(std::string_view text) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) refuse_zero_byte(zero + 1);
  Builder builder(*this);
  json::sax_parse(text.begin(), text.end(), &builder);
  json root = builder.take();
  if (!root.is_object()) refuse_root(root);
  return root;
}

}  // namespace remat
