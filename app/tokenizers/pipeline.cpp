#include "tokenizers/pipeline.h"

#include <algorithm>

#include <remat/error.h>

#include "tokenizers/file.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {

/// Words of one text that have their ids already: where these stand among the text's ids.
class Pipeline::WordCache {
 public:
  void append(const Model& model, std::string_view word, std::vector<int64_t>& ids) {
    constexpr size_t most_bytes = 256;  // longer words do not come again
    const auto known = word.size() <= most_bytes ? places_.find(word) : places_.end();
    if (known != places_.end()) {
      for (size_t i = 0; i < known->second.count; ++i) ids.push_back(ids[known->second.begin + i]);
      return;
    }
    const size_t begin = ids.size();
    model.encode_word(word, ids);
    if (word.size() <= most_bytes) places_.emplace(word, Place{begin, ids.size() - begin});
  }

 private:
  struct Place {
    size_t begin, count;
  };
  StringMap<Place> places_;
};

SpecialIds find_special_ids(const SpecialNames& names,
                            const std::function<std::optional<int64_t>(std::string_view)>& token_id) {
  const auto id = [&](const std::optional<std::string>& name) { return name ? token_id(*name) : std::nullopt; };
  return {id(names.bos), id(names.eos), id(names.pad), id(names.cls), id(names.sep), id(names.mask), id(names.unk)};
}

Pipeline::Pipeline(PipelineParts parts, const SpecialNames& names)
    : parts_(std::move(parts)),
      vocabulary_size_(parts_.model->vocabulary().size()),
      in_text_(found_in(false)),
      in_normalized_(found_in(true)) {
  for (const AddedToken& token : parts_.added_tokens) check_added(token);
  for (const auto* ids : {&parts_.surroundings.before, &parts_.surroundings.after}) {
    for (const int64_t id : *ids) {
      if (token(id) != nullptr) continue;
      refuse_file(parts_.model->vocabulary().file(),
                  "the id " + std::to_string(id) + ", added around every text, is that of no token");
    }
  }
  special_ids_ = find_special_ids(names, [this](std::string_view name) { return Pipeline::token_id(name); });
}

void Pipeline::check_added(const AddedToken& token) {
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  const auto refuse = [&](const std::string& what) {
    refuse_file(vocabulary.file(),
                "the added token " + shown(token.content) + " has the id " + std::to_string(token.id) + what);
  };
  const auto in_model = vocabulary.id(token.content);
  if (in_model && *in_model != token.id) refuse(", in the vocabulary it has " + std::to_string(*in_model));
  const auto* other = this->token(token.id);
  if (!in_model && other != nullptr) refuse(", which is that of " + shown(*other));
  added_ids_.emplace(token.content, token.id);
  added_contents_.emplace(token.id, token.content);
  vocabulary_size_ = std::max(vocabulary_size_, token.id + 1);
}

std::vector<AddedToken> Pipeline::found_in(bool normalized) const {
  std::vector<AddedToken> tokens;
  StringMap<std::string> others;
  for (AddedToken token : parts_.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && parts_.normalizer) normalize_added(token, others);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// `others`: those that are normalized already, by what they are then. transformers takes any one of two that are the
/// same, and cuts texts between all characters where one is empty.
void Pipeline::normalize_added(AddedToken& token, StringMap<std::string>& others) const {
  std::string content = token.content;
  parts_.normalizer->apply(content);
  const auto refuse = [&](const std::string& what) {
    refuse_file(parts_.model->vocabulary().file(), "the added token " + shown(token.content) + what,
                "save the tokenizer without it, or with its \"normalized\" false");
  };
  if (content.empty()) refuse(" has \"normalized\": true, and nothing is left of it once it is normalized");
  const auto [other, is_new] = others.emplace(content, token.content);
  if (!is_new)
    refuse(" is the same as " + shown(other->second) + " once it is normalized, and both are \"normalized\"");
  token.content = std::move(content);
}

const std::string* Pipeline::token(int64_t id) const {
  const auto added = added_contents_.find(id);
  return added != added_contents_.end() ? &added->second : parts_.model->vocabulary().token(id);
}

std::optional<int64_t> Pipeline::token_id(std::string_view token) const {
  const auto added = added_ids_.find(token);
  return added != added_ids_.end() ? std::optional(added->second) : parts_.model->vocabulary().id(token);
}

std::vector<int64_t> Pipeline::encode(std::string_view text) const {
  std::string repaired;
  if (!is_well_formed(text)) text = repaired = replace_ill_formed(text);
  std::vector<int64_t> ids;
  WordCache cache;
  const auto add = [&](const AddedToken& token) { ids.push_back(token.id); };
  in_text_.split(
      text,
      [&](std::string_view piece) {
        const bool first = piece.data() == text.data();
        std::string normalized;
        if (parts_.normalizer) {
          normalized = piece;
          parts_.normalizer->apply(normalized);
          piece = normalized;
        }
        in_normalized_.split(
            piece, [&](std::string_view part) { encode_piece(part, first && part.data() == piece.data(), cache, ids); },
            add);
      },
      add);
  return ids;
}

void Pipeline::encode_piece(std::string_view piece, bool first, WordCache& cache, std::vector<int64_t>& ids) const {
  parts_.pre_tokenizer->split(piece, first, [&](std::string_view word) { cache.append(*parts_.model, word, ids); });
}

std::vector<int64_t> Pipeline::encode_with_special_tokens(std::string_view text) const {
  std::vector<int64_t> ids = encode(text);
  ids.insert(ids.begin(), parts_.surroundings.before.begin(), parts_.surroundings.before.end());
  ids.insert(ids.end(), parts_.surroundings.after.begin(), parts_.surroundings.after.end());
  return ids;
}

std::string Pipeline::decode(const std::vector<int64_t>& ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    const std::string* found = token(id);
    if (found == nullptr) {
      throw Error("[tokenizer] the id " + std::to_string(id) + " is that of no token; those of '" +
                  parts_.model->vocabulary().file().string() + "' are below " + std::to_string(vocabulary_size_));
    }
    tokens.push_back(*found);
  }
  parts_.decoder->apply(tokens);
  std::string text;
  for (const std::string& piece : tokens) text += piece;
  return text;
}

}  // namespace remat::tokenizers
