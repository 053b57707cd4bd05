#include "tokenizers/json_file.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/json_object.h"
#include "tokenizers/file.h"

namespace remat::tokenizers {
namespace {

using nlohmann::json;

constexpr size_t kMostNested = 32;
constexpr size_t kMostValues = 10'000'000;  // five times those of the largest vocabulary that is published

json read_document(const std::filesystem::path& file) {
  try {
    return common::read_json_object(read_file(file), kMostNested, kMostValues);
  } catch (const common::JsonProblem& problem) {
    refuse_file(file, problem.text);
  }
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
    : document_(std::make_shared<const Document>(Document{file, read_document(file)})), value_(&document_->root) {}

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
