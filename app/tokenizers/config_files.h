// tokenizers/config_files.h -- what tokenizer_config.json and special_tokens_map.json say of a tokenizer.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/added_tokens.h"
#include "tokenizers/json_file.h"

namespace remat::tokenizers {

/// Tokens by their roles, as they stand in the vocabulary.
struct SpecialNames {
  std::optional<std::string> bos, eos, pad, cls, sep, mask, unk;
};

/// In the language of Jinja.
struct ChatTemplateText {
  std::filesystem::path file;  ///< that has it
  std::string text;
};

class ConfigFiles {
 public:
  /// Either file may be absent. Throws Error where one cannot be read.
  explicit ConfigFiles(const std::filesystem::path& directory);

  bool flag_or(std::string_view field, bool otherwise) const;
  std::optional<bool> flag(std::string_view field) const;
  /// Of "truncation_side" and "padding_side", which are right where nothing is said.
  bool is_left(std::string_view field) const;

  /// `usual`: for roles that neither file names.
  SpecialNames special_names(const SpecialNames& usual) const;
  /// Those of transformers' class for it, which says them where the files do not; nothing where it is none of those
  /// known here by name.
  std::optional<SpecialNames> names_of_class() const;

  /// The tokens that the files name, with what they say of each; their ids are not those of the vocabulary. Those of
  /// roles first, as transformers adds them where they are missing, then "extra_special_tokens".
  std::vector<AddedToken> named_tokens() const;

  /// "added_tokens_decoder", by which transformers saves the tokens that are not of the model.
  std::vector<AddedToken> added_tokens() const;

  /// chat_template.jinja, or the "chat_template" of tokenizer_config.json: of several that with the name "default".
  std::optional<ChatTemplateText> chat_template() const;

  /// Throws Error unless "tokenizer_class", if there, is one of these, without "Fast" behind it; where it is not,
  /// unless the "model_type" of a config.json beside is one of `kinds`.
  void require_class(std::initializer_list<std::string_view> classes,
                     std::initializer_list<std::string_view> kinds) const;

 private:
  /// Of tokenizer_config.json.
  std::optional<JsonNode> find(std::string_view field) const;
  /// What the first file that has such a field says; nothing where neither has one, or says null.
  std::optional<JsonNode> find_in_either(const std::string& field) const;
  std::optional<std::string> name(const std::string& role, const std::optional<std::string>& usual) const;

  std::filesystem::path directory_;
  std::optional<JsonNode> config_, map_;
};

}  // namespace remat::tokenizers
