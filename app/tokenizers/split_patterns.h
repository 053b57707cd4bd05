// tokenizers/split_patterns.h -- the regular expressions by which byte-level tokenizers cut a text into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace remat::tokenizers {

enum class SplitPattern : uint8_t {
  kGpt2,    ///< words with the space before them, numbers, other characters, spaces
  kLlama3,  ///< words may begin with another character, numbers have up to three digits, line ends end a word
  kQwen2,   ///< the same with numbers of one digit
  kGpt4o,   ///< as Llama 3's, but words begin where upper case does, and end with contractions
  kTekken,  ///< the same with numbers of one digit and without contractions: Mistral's since Nemo
};

/// The pattern that this expression is, if one of these.
std::optional<SplitPattern> find_split_pattern(std::string_view expression);

/// The end of the match at byte `begin` of a well-formed text. There is always one.
size_t match_end(SplitPattern pattern, std::string_view text, size_t begin);

}  // namespace remat::tokenizers
