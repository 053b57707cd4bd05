// tokenizers/json_file.h -- a JSON file read with suspicion.
//
// For any text, reading ends with a value or an Error, takes memory in proportion to the text, and does not recurse.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace remat::tokenizers {

/// A value in a JSON file, with its place there for messages: "[tokenizer] 'tokenizer.json': model.type is missing".
/// Functions throw Error where the file has something else than they ask for. Copies refer to the same document.
class JsonNode {
 public:
  /// Parses the whole file, whose root must be an object. Refused are names that stand twice in an object, nesting
  /// deeper than 32 levels, and more than ten million values.
  explicit JsonNode(const std::filesystem::path& file);

  const std::filesystem::path& file() const;
  const nlohmann::json& value() const { return *value_; }

  /// A field of this object. It must be there; may be absent or null.
  JsonNode at(std::string_view field) const;
  std::optional<JsonNode> find(std::string_view field) const;
  std::vector<JsonNode> elements() const;  ///< of this array

  const std::string& text() const;
  bool flag() const;
  int64_t integer(int64_t least, int64_t most) const;

  /// Of a field that may be absent or null.
  bool flag_or(std::string_view field, bool otherwise) const;
  std::string text_or(std::string_view field, const std::string& otherwise) const;

  /// The field "type".
  const std::string& type() const { return at("type").text(); }

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  struct Document;
  JsonNode(std::shared_ptr<const Document> document, const nlohmann::json& value, std::string place);
  JsonNode child(const nlohmann::json& value, const std::string& step) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::json* value_;
  std::string place_;
};

/// The value as messages show it.
std::string describe(const nlohmann::json& value);

}  // namespace remat::tokenizers
