#include "tokenizers/config_files.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "tokenizers/file.h"
#include "tokenizers/vocabulary.h"

namespace remat::tokenizers {
namespace {

std::optional<JsonNode> read_if_there(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  return JsonNode(file);
}

}  // namespace

ConfigFiles::ConfigFiles(const std::filesystem::path& directory)
    : directory_(directory),
      config_(read_if_there(directory / "tokenizer_config.json")),
      map_(read_if_there(directory / "special_tokens_map.json")) {}

std::optional<JsonNode> ConfigFiles::find(std::string_view field) const {
  return config_ ? config_->find(field) : std::nullopt;
}

std::optional<bool> ConfigFiles::flag(std::string_view field) const {
  const auto node = find(field);
  return node ? std::optional(node->flag()) : std::nullopt;
}

bool ConfigFiles::is_left(std::string_view field) const {
  const auto node = find(field);
  return node && node->text() == "left";
}

bool ConfigFiles::flag_or(std::string_view field, bool otherwise) const { return flag(field).value_or(otherwise); }

std::optional<JsonNode> ConfigFiles::find_in_either(const std::string& field) const {
  for (const auto& file : {config_, map_}) {
    if (file && file->value().contains(field)) return file->find(field);
  }
  return std::nullopt;
}

std::optional<std::string> ConfigFiles::name(const std::string& role, const std::optional<std::string>& usual) const {
  const bool said = (config_ && config_->value().contains(role)) || (map_ && map_->value().contains(role));
  if (!said) return usual;
  const auto token = find_in_either(role);
  if (!token) return std::nullopt;  // null: there is none
  return token->value().is_object() ? token->at("content").text() : token->text();
}

std::vector<AddedToken> ConfigFiles::named_tokens() const {
  std::vector<AddedToken> tokens;
  const auto add = [&](const JsonNode& token) {
    const bool object = token.value().is_object();
    tokens.push_back(object ? read_added_token(token, -1, /*special=*/true)
                            : AddedToken{.content = token.text(), .id = -1});
  };
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (const auto token = find_in_either(role)) add(*token);
  }
  auto more = find_in_either("extra_special_tokens");
  if (!more) more = find_in_either("additional_special_tokens");  // what older files call it
  if (!more) return tokens;
  if (!more->value().is_object()) {
    for (const JsonNode& token : more->elements()) add(token);
    return tokens;
  }
  for (const auto& [name, ignored] : more->value().get_ref<const nlohmann::json::object_t&>()) add(more->at(name));
  return tokens;
}

SpecialNames ConfigFiles::special_names(const SpecialNames& usual) const {
  return {name("bos_token", usual.bos), name("eos_token", usual.eos), name("pad_token", usual.pad),
          name("cls_token", usual.cls), name("sep_token", usual.sep), name("mask_token", usual.mask),
          name("unk_token", usual.unk)};
}

std::optional<SpecialNames> ConfigFiles::names_of_class() const {
  std::string name, kind;
  if (const auto node = find("tokenizer_class")) {
    name = node->text();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
  } else if (const auto model = read_if_there(directory_ / "config.json")) {
    if (const auto type = model->find("model_type")) kind = type->text();
  }
  SpecialNames names;
  if (name == "LlamaTokenizer") {
    names.bos = "<s>", names.eos = "</s>", names.unk = "<unk>";
  } else if (name == "GemmaTokenizer" || kind == "gemma" || kind == "gemma2" || kind == "gemma3_text") {
    names.bos = "<bos>", names.eos = "<eos>", names.unk = "<unk>", names.pad = "<pad>", names.mask = "<mask>";
  } else if (name == "GPT2Tokenizer" || kind == "gpt2") {
    names.bos = names.eos = names.unk = "<|endoftext|>";
  } else if (name == "Qwen2Tokenizer" || kind == "qwen2" || kind == "qwen3") {
    names.eos = names.unk = names.pad = "<|endoftext|>";
  } else {
    return std::nullopt;
  }
  return names;
}

std::vector<AddedToken> ConfigFiles::added_tokens() const {
  const auto list = find("added_tokens_decoder");
  if (!list) return {};
  if (!list->value().is_object()) list->refuse("is " + describe(list->value()) + ", not an object");
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string> contents;
  for (const auto& [key, ignored] : list->value().get_ref<const nlohmann::json::object_t&>()) {
    int64_t id = -1;
    const char* end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end || id < 0 || id >= kMostIds) {
      list->refuse("has " + shown(key) + ", not an id from 0 to " + std::to_string(kMostIds - 1));
    }
    tokens.push_back(read_added_token(list->at(key), id));
    if (!contents.insert(tokens.back().content).second) {
      list->refuse("has " + shown(tokens.back().content) + " twice");
    }
  }
  std::ranges::sort(tokens, {}, &AddedToken::id);
  return tokens;
}

std::optional<ChatTemplateText> ConfigFiles::chat_template() const {
  const auto file = directory_ / "chat_template.jinja";
  if (std::filesystem::exists(file)) return ChatTemplateText{.file = file, .text = read_text_file(file)};
  const auto node = find("chat_template");
  if (!node) return std::nullopt;
  if (node->value().is_string()) return ChatTemplateText{.file = node->file(), .text = node->text()};
  for (const JsonNode& one : node->elements()) {
    if (one.at("name").text() == "default")
      return ChatTemplateText{.file = node->file(), .text = one.at("template").text()};
  }
  node->refuse("has several templates, and none with the name \"default\"");
}

void ConfigFiles::require_class(std::initializer_list<std::string_view> classes,
                                std::initializer_list<std::string_view> kinds) const {
  const auto node = find("tokenizer_class");
  if (!node) {
    const auto model = read_if_there(directory_ / "config.json");
    const auto kind = model ? model->find("model_type") : std::nullopt;
    if (!kind || std::ranges::find(kinds, kind->text()) != kinds.end()) return;
    kind->refuse("is " + shown(kind->text()) + ", whose tokenizer is known here by a tokenizer.json alone");
  }
  std::string_view name = node->text();
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (std::ranges::find(classes, name) != classes.end()) return;
  node->refuse("is " + shown(node->text()) + ", which is known here by a tokenizer.json alone");
}

}  // namespace remat::tokenizers
