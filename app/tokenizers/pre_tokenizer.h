// tokenizers/pre_tokenizer.h -- cutting a text into the words that the model makes tokens of.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "tokenizers/json_file.h"
#include "tokenizers/split_patterns.h"

namespace remat::tokenizers {

class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view word)>;

  virtual ~PreTokenizer() = default;
  /// Gives the words of a well-formed text in their order; none is empty, each is valid during its call.
  /// `first`: the text begins where the whole text does, and not behind an added token.
  virtual void split(std::string_view text, bool first, const Sink& word) const = 0;
  /// Whether `first` makes a difference.
  virtual bool asks_for_first() const { return false; }
};

/// BERT's: words between white space, punctuation alone.
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer();

/// GPT-2's: by a pattern, or not at all without one; then a character for every byte. `add_prefix_space`: before texts
/// that do not begin with one.
std::unique_ptr<PreTokenizer> make_byte_level_pre_tokenizer(std::optional<SplitPattern> pattern, bool add_prefix_space);

/// Of "pre_tokenizer" in tokenizer.json: BertPreTokenizer, ByteLevel, Metaspace, Split by a known pattern, Sequence. A
/// text is one word where there is none. Throws Error for others.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const std::optional<JsonNode>& node);

}  // namespace remat::tokenizers
