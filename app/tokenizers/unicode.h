// tokenizers/unicode.h -- UTF-8, properties of characters, and normal forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace remat::tokenizers {

bool is_well_formed(std::string_view text);

/// A copy in which every maximal subpart of an ill-formed sequence is U+FFFD.
std::string replace_ill_formed(std::string_view text);

/// The character at byte `at` of a well-formed text, which moves behind it.
char32_t next_character(std::string_view text, size_t& at);

void append_character(std::string& text, char32_t character);

/// What GPT-2's pattern tells apart: \p{L}, \p{N}, \s, and all else.
enum class CharacterClass : uint8_t { kLetter, kNumber, kSpace, kOther };
CharacterClass class_of(char32_t character);

/// What GPT-4o's pattern tells apart: Lu and Lt; Ll; Lm, Lo and M, which are in words of either case; all else.
enum class LetterCase : uint8_t { kUpper, kLower, kCommon, kNone };
LetterCase case_of(char32_t character);

bool is_space(char32_t character);            ///< White_Space
bool is_word_character(char32_t character);   ///< \w
bool is_punctuation(char32_t character);      ///< P, and what ASCII has of S
bool is_nonspacing_mark(char32_t character);  ///< Mn
bool is_other(char32_t character);            ///< Cc, Cf and Co

/// Appends the character in lower case, which may be two characters (U+0130).
void append_lower(std::string& text, char32_t character);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
/// Of a well-formed text.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace remat::tokenizers
