// tokenizers/tokenizer.h -- texts as token ids, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace remat::tokenizers {

/// Ids of the tokens that have a role, where the model has one for it.
struct SpecialIds {
  std::optional<int64_t> bos, eos, pad, cls, sep, mask, unk;
};

/// Texts are UTF-8. What is ill-formed in one is read as Python's decode("utf-8", errors="replace") reads it: every
/// maximal subpart of an ill-formed sequence becomes U+FFFD.
///
/// A tokenizer does not change: any number of threads may use it at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of `text`, none added. Special tokens that stand in the text (as "[MASK]") are found, as transformers
  /// finds them. Throws Error where 2^31 or more characters would be one word.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;

  /// encode(), and around it what the model is given: [CLS] and [SEP] for BERT, <s> for Llama, nothing for GPT-2.
  virtual std::vector<int64_t> encode_with_special_tokens(std::string_view text) const = 0;

  /// The text of these ids, that of special tokens too. Always well-formed; not always the text that was encoded, since
  /// encoding may lose something (BERT's loses case and spaces). Throws Error for an id that no token has.
  virtual std::string decode(const std::vector<int64_t>& ids) const = 0;

  /// One more than the largest id: the rows that an embedding needs. More than there are tokens where ids are left out.
  virtual int64_t vocabulary_size() const = 0;

  /// The id of a token as it stands in the vocabulary ("[SEP]", "##ing", "Ġthe").
  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;

  virtual const SpecialIds& special_ids() const = 0;
};

}  // namespace remat::tokenizers
