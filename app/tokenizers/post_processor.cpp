#include "tokenizers/post_processor.h"

#include "tokenizers/file.h"

namespace remat::tokenizers {
namespace {

constexpr size_t kMostTokens = 1024;

int64_t read_id(const JsonNode& node) { return node.integer(0, kMostIds - 1); }

/// The id in a pair as ["[SEP]", 102].
int64_t id_of_pair(const JsonNode& pair) {
  const auto elements = pair.elements();
  if (elements.size() != 2) pair.refuse("has " + std::to_string(elements.size()) + " elements, not a token and its id");
  return read_id(elements[1]);
}

Surroundings read_template(const JsonNode& node) {
  Surroundings result;
  bool seen_text = false;
  const JsonNode pieces = node.at("single");
  for (const JsonNode& piece : pieces.elements()) {
    if (const auto text = piece.find("Sequence")) {
      if (seen_text || text->at("id").text() != "A") piece.refuse("is another text; one is known here, A");
      seen_text = true;
      continue;
    }
    const std::string& token = piece.at("SpecialToken").at("id").text();
    auto& ids = seen_text ? result.after : result.before;
    for (const JsonNode& id : node.at("special_tokens").at(token).at("ids").elements()) ids.push_back(read_id(id));
  }
  if (!seen_text) pieces.refuse("has no place for the text");
  return result;
}

/// Puts around what is in `result` already.
void read(const JsonNode& node, Surroundings& result) {
  const std::string& type = node.type();
  Surroundings outer;
  if (type == "Sequence") {
    for (const JsonNode& part : node.at("processors").elements()) read(part, result);
  } else if (type == "TemplateProcessing") {
    outer = read_template(node);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    outer = {{id_of_pair(node.at("cls"))}, {id_of_pair(node.at("sep"))}};
  } else if (type != "ByteLevel") {
    node.at("type").refuse("is " + shown(type) + ", a post-processor that is not known here");
  }
  if (result.before.size() + result.after.size() + outer.before.size() + outer.after.size() > kMostTokens) {
    node.refuse("adds more than " + std::to_string(kMostTokens) + " tokens");
  }
  result.before.insert(result.before.begin(), outer.before.begin(), outer.before.end());
  result.after.insert(result.after.end(), outer.after.begin(), outer.after.end());
}

}  // namespace

Surroundings read_post_processor(const std::optional<JsonNode>& node) {
  Surroundings result;
  if (node) read(*node, result);
  return result;
}

}  // namespace remat::tokenizers
