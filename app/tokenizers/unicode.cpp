#include "tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include <remat/error.h>

namespace remat::tokenizers {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

/// One sequence of a text: a character, or the maximal subpart of an ill-formed one.
struct Sequence {
  char32_t character;
  size_t bytes;
  bool well_formed;
};

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// The range of the second byte depends on the first (The Unicode Standard, table 3-7).
Sequence sequence_at(std::string_view text, size_t at) {
  const uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacement, 1, false};
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t least = 0x80, most = 0xBF;
  if (lead == 0xE0) least = 0xA0;
  if (lead == 0xED) most = 0x9F;
  if (lead == 0xF0) least = 0x90;
  if (lead == 0xF4) most = 0x8F;
  auto character = static_cast<char32_t>(lead & (0x7FU >> bytes));
  for (size_t i = 1; i < bytes; ++i) {
    if (at + i == text.size()) return {kReplacement, i, false};
    const uint8_t next = byte_at(text, at + i);
    if (next < least || next > most) return {kReplacement, i, false};
    character = (character << 6U) | (next & 0x3FU);
    least = 0x80;
    most = 0xBF;
  }
  return {character, bytes, true};
}

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

bool is_in(utf8proc_category_t value, utf8proc_category_t first, utf8proc_category_t last) {
  return value >= first && value <= last;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

CharacterClass find_class(char32_t character) {
  if (is_space(character)) return CharacterClass::kSpace;
  const auto value = category(character);
  if (is_in(value, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO)) return CharacterClass::kLetter;
  if (is_in(value, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO)) return CharacterClass::kNumber;
  return CharacterClass::kOther;
}

std::array<CharacterClass, 128> ascii_classes() {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < classes.size(); ++c) classes[c] = find_class(c);
  return classes;
}

utf8proc_option_t options_of(NormalForm form) {
  unsigned options = UTF8PROC_STABLE;
  options |= form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

}  // namespace

bool is_well_formed(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.well_formed) return false;
    at += sequence.bytes;
  }
  return true;
}

std::string replace_ill_formed(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Sequence sequence = sequence_at(text, at);
    append_character(result, sequence.character);
    at += sequence.bytes;
  }
  return result;
}

char32_t next_character(std::string_view text, size_t& at) {
  const Sequence sequence = sequence_at(text, at);
  at += sequence.bytes;
  return sequence.character;
}

void append_character(std::string& text, char32_t character) {
  const auto tail = [&](unsigned shift) {
    text += static_cast<char>(0x80U | ((static_cast<uint32_t>(character) >> shift) & 0x3FU));
  };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += static_cast<char>(0xC0U | (character >> 6U));
    tail(0);
  } else if (character < 0x10000) {
    text += static_cast<char>(0xE0U | (character >> 12U));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0U | (character >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

CharacterClass class_of(char32_t character) {
  static const auto ascii = ascii_classes();
  return character < ascii.size() ? ascii[character] : find_class(character);
}

LetterCase case_of(char32_t character) {
  const auto value = category(character);
  if (value == UTF8PROC_CATEGORY_LU || value == UTF8PROC_CATEGORY_LT) return LetterCase::kUpper;
  if (value == UTF8PROC_CATEGORY_LL) return LetterCase::kLower;
  return is_in(value, UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_ME) ? LetterCase::kCommon : LetterCase::kNone;
}

bool is_space(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  return character == 0x85 || is_in(category(character), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_word_character(char32_t character) {
  const auto value = category(character);
  if (is_in(value, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || value == UTF8PROC_CATEGORY_PC) return true;
  // Letters by another property than their category: in circles and squares; and those that join letters.
  return (character >= 0x24B6 && character <= 0x24E9) || (character >= 0x1F130 && character <= 0x1F149) ||
         (character >= 0x1F150 && character <= 0x1F169) || (character >= 0x1F170 && character <= 0x1F189) ||
         character == 0x200C || character == 0x200D;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) return is_ascii_punctuation(character);
  return is_in(category(character), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_nonspacing_mark(char32_t character) { return category(character) == UTF8PROC_CATEGORY_MN; }

bool is_other(char32_t character) {
  const auto value = category(character);
  return value == UTF8PROC_CATEGORY_CC || value == UTF8PROC_CATEGORY_CF || value == UTF8PROC_CATEGORY_CO;
}

void append_lower(std::string& text, char32_t character) {
  constexpr char32_t capital_i_with_dot = 0x130, dot_above = 0x307;
  if (character == capital_i_with_dot) {
    text += 'i';
    append_character(text, dot_above);
    return;
  }
  append_character(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
}

std::string normalize(std::string_view text, NormalForm form) {
  // ASCII is in every form.
  if (std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; })) return std::string(text);
  utf8proc_uint8_t* data = nullptr;
  const auto bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                  static_cast<utf8proc_ssize_t>(text.size()), &data, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(data, &std::free);
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (bytes < 0)
    throw Error("[tokenizer] a text of " + std::to_string(text.size()) + " bytes cannot be normalized (" +
                utf8proc_errmsg(bytes) + "); give it in pieces");
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)};
}

}  // namespace remat::tokenizers
