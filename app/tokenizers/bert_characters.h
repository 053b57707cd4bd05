// tokenizers/bert_characters.h -- kinds of characters as transformers' BERT tokenizer sees them.
//
// It goes by the tables of Unicode 8, so what came later or was moved since is another kind of character to it than to
// the other tokenizers.
#pragma once

namespace remat::tokenizers::bert {

bool is_punctuation(char32_t character);  ///< a word of its own
bool is_removed(char32_t character);      ///< control characters and the like, by cleaning
bool is_accent(char32_t character);       ///< nonspacing marks, by stripping
bool is_chinese(char32_t character);      ///< a word of its own, in the blocks of CJK ideographs

}  // namespace remat::tokenizers::bert
