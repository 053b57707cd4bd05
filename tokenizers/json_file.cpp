#include "tokenizers/json_file.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizers/file.h"

namespace remat::tokenizers {
namespace {

using nlohmann::json;

constexpr size_t kMostNested = 32;
constexpr size_t kMostValues = 10'000'000;  // five times those of the largest vocabulary that is published

/// Builds a document from the parser's events. nlohmann's own builder lets a name that stands twice pass and has no
/// bounds.
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const std::filesystem::path& file) : file_(file) {}

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
    if (!inserted) refuse_file(file_, "has the field " + shown(name) + " twice in one object");
    field_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const json::exception& /*error*/) override {
    refuse_file(file_, "is no JSON at byte " + std::to_string(position));
  }

 private:
  json* put(json value) {
    if (++values_ > kMostValues) refuse_file(file_, "has more than " + std::to_string(kMostValues) + " values");
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
    if (open_.size() == kMostNested) {
      refuse_file(file_, "is nested deeper than " + std::to_string(kMostNested) + " levels");
    }
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::filesystem::path& file_;
  json root_;
  std::vector<json*> open_;  // objects and arrays that have not ended; the last of each parent, so they do not move
  json* field_ = nullptr;    // for the next value, if it goes into an object
  size_t values_ = 0;
};

json parse(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  // nlohmann takes a zero byte for the end of the text, and would ignore the text after it.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    refuse_file(file, "has a zero byte, byte " + std::to_string(zero + 1));
  }
  Builder builder(file);
  json::sax_parse(text.begin(), text.end(), &builder);
  json root = builder.take();
  if (!root.is_object()) refuse_file(file, "is " + describe(root) + ", not an object");
  return root;
}

}  // namespace

std::string describe(const json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.is_string() ? shown(value.get_ref<const std::string&>()) : value.dump();
}

struct JsonNode::Document {
  std::filesystem::path file;
  json root;
};

JsonNode::JsonNode(const std::filesystem::path& file)
    : document_(std::make_shared<const Document>(Document{file, parse(file)})), value_(&document_->root) {}

JsonNode::JsonNode(std::shared_ptr<const Document> document, const json& value, std::string place)
    : document_(std::move(document)), value_(&value), place_(std::move(place)) {}

const std::filesystem::path& JsonNode::file() const { return document_->file; }

JsonNode JsonNode::child(const json& value, const std::string& step) const { return {document_, value, place_ + step}; }

JsonNode JsonNode::at(std::string_view field) const {
  const auto node = find(field);
  if (!node) refuse("has no field " + shown(field));
  return *node;
}

std::optional<JsonNode> JsonNode::find(std::string_view field) const {
  if (!value_->is_object()) refuse("is " + describe(*value_) + ", not an object");
  const auto found = value_->find(field);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return child(*found, (place_.empty() ? "" : ".") + std::string(field));
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) refuse("is " + describe(*value_) + ", not an array");
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (const json& element : *value_) nodes.push_back(child(element, "[" + std::to_string(nodes.size()) + "]"));
  return nodes;
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) refuse("is " + describe(*value_) + ", not a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::flag() const {
  if (!value_->is_boolean()) refuse("is " + describe(*value_) + ", not true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t least, int64_t most) const {
  const bool fits =
      value_->is_number_unsigned() ? std::in_range<int64_t>(value_->get<uint64_t>()) : value_->is_number_integer();
  if (!fits || value_->get<int64_t>() < least || value_->get<int64_t>() > most) {
    refuse("is " + describe(*value_) + ", not an integer between " + std::to_string(least) + " and " +
           std::to_string(most));
  }
  return value_->get<int64_t>();
}

bool JsonNode::flag_or(std::string_view field, bool otherwise) const {
  const auto node = find(field);
  return node ? node->flag() : otherwise;
}

std::string JsonNode::text_or(std::string_view field, const std::string& otherwise) const {
  const auto node = find(field);
  return node ? node->text() : otherwise;
}

void JsonNode::refuse(const std::string& what) const {
  refuse_file(file(), (place_.empty() ? "the document" : place_) + " " + what);
}

}  // namespace remat::tokenizers
