// tokenizers/normalizer.h -- changes to a text before it is cut into words.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizers/json_file.h"

namespace remat::tokenizers {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes a well-formed text, which stays well-formed.
  virtual void apply(std::string& text) const = 0;
  /// Whether characters may go without others in their place.
  virtual bool removes() const { return false; }
};

/// BERT's, in the order of the fields.
struct BertNormalizerOptions {
  bool clean_text = true;            ///< without control characters; white space is a space
  bool handle_chinese_chars = true;  ///< a space before and behind each of them
  std::optional<bool>
      strip_accents;  ///< canonically decomposed, without nonspacing marks; as `lowercase` where not said
  bool lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options);

/// Of "normalizer" in tokenizer.json: BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace (of a string),
/// Sequence; null where there is none. Throws Error for others, and for replacements that would make of a text one that
/// is more than 64 times as long.
std::unique_ptr<Normalizer> read_normalizer(const std::optional<JsonNode>& node);

/// All of `from` in `text` replaced by `to`. `from` is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace remat::tokenizers
