// tokenizers/pipeline.h -- a tokenizer of Hugging Face's parts: added tokens, normalizer, pre-tokenizer, model.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "tokenizers/added_tokens.h"
#include "tokenizers/config_files.h"
#include "tokenizers/decoder.h"
#include "tokenizers/model.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/tokenizer.h"

namespace remat::tokenizers {

struct PipelineParts {
  std::unique_ptr<Normalizer> normalizer;  ///< or null
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;
  Surroundings surroundings;
  std::vector<AddedToken> added_tokens;
};

/// The ids of roles. A name that is no token has none.
SpecialIds find_special_ids(const SpecialNames& names,
                            const std::function<std::optional<int64_t>(std::string_view)>& token_id);

class Pipeline : public Tokenizer {
 public:
  /// Throws Error where an added token has the id of another token, or the surroundings an id that no token has.
  Pipeline(PipelineParts parts, const SpecialNames& names);

  std::vector<int64_t> encode(std::string_view text) const override;
  std::vector<int64_t> encode_with_special_tokens(std::string_view text) const override;
  std::string decode(const std::vector<int64_t>& ids) const override;
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  std::optional<int64_t> token_id(std::string_view token) const override;
  const SpecialIds& special_ids() const override { return special_ids_; }

 private:
  class WordCache;

  void check_added(const AddedToken& token);
  const std::string* token(int64_t id) const;
  std::vector<AddedToken> found_in(bool normalized) const;
  void normalize_added(AddedToken& token, StringMap<std::string>& others) const;
  void encode_piece(std::string_view piece, bool first, WordCache& cache, std::vector<int64_t>& ids) const;

  PipelineParts parts_;
  StringMap<int64_t> added_ids_;
  std::unordered_map<int64_t, std::string> added_contents_;
  int64_t vocabulary_size_;
  AddedTokenFinder in_text_, in_normalized_;
  SpecialIds special_ids_;
};

}  // namespace remat::tokenizers
