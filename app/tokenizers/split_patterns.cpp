#include "tokenizers/split_patterns.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

using Class = CharacterClass;

// As they stand in tokenizer.json. GPT-2's is what ByteLevel means where it has no other.
constexpr std::pair<std::string_view, SplitPattern> kExpressions[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", SplitPattern::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     SplitPattern::kLlama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     SplitPattern::kQwen2},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::kGpt4o},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::kTekken},
};

bool is_line_end(char32_t character) { return character == '\r' || character == '\n'; }

/// Reads a text forward from one place.
class Scanner {
 public:
  Scanner(std::string_view text, size_t at) : text_(text), at_(at) { look(); }

  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  bool is(Class value) const { return !at_end() && class_ == value; }
  bool at_line_end() const { return !at_end() && is_line_end(character_); }
  char32_t character() const { return character_; }
  void next() {
    at_ = after_;
    look();
  }
  /// Up to `most` characters of the class; returns how many.
  size_t skip(Class value, size_t most = SIZE_MAX) {
    size_t count = 0;
    for (; count < most && is(value); ++count) next();
    return count;
  }

 private:
  void look() {
    after_ = at_;
    if (at_end()) return;
    character_ = next_character(text_, after_);
    class_ = class_of(character_);
  }

  std::string_view text_;
  size_t at_, after_ = 0;
  char32_t character_ = 0;
  Class class_ = Class::kOther;
};

/// The bytes of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of `text`, or 0.
size_t contraction(std::string_view text, bool any_case) {
  if (text.empty() || text[0] != '\'') return 0;
  // "ſ", the long s, is an s in another case.
  if (any_case && text.substr(1).starts_with("\u017F")) return 3;
  const auto letter = [&](size_t place) {
    const char c = place < text.size() ? text[place] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  constexpr std::string_view ones = "stmd";
  if (letter(1) != '\0' && ones.find(letter(1)) != std::string_view::npos) return 2;
  const std::array<char, 2> pair{letter(1), letter(2)};
  const std::string_view two(pair.data(), pair.size());
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

/// \s+(?!\S)|\s+ : a run of spaces without its last, unless the text ends there or it is the only one.
size_t spaces_end(std::string_view text, size_t begin) {
  Scanner scanner(text, begin);
  size_t last = begin;
  while (scanner.is(Class::kSpace)) {
    last = scanner.at();
    scanner.next();
  }
  return scanner.at_end() || last == begin ? scanner.at() : last;
}

size_t gpt2_end(std::string_view text, size_t begin) {
  if (const size_t bytes = contraction(text.substr(begin), false)) return begin + bytes;
  Scanner scanner(text, begin);
  if (scanner.character() == ' ') scanner.next();
  for (const Class value : {Class::kLetter, Class::kNumber, Class::kOther}) {
    if (scanner.skip(value) > 0) return scanner.at();
  }
  return spaces_end(text, begin);
}

/// [^\r\n\p{L}\p{N}]?\p{L}+, or `begin`.
size_t letters_end(std::string_view text, size_t begin) {
  Scanner scanner(text, begin);
  if (!scanner.is(Class::kLetter) && !scanner.is(Class::kNumber) && !scanner.at_line_end()) scanner.next();
  return scanner.skip(Class::kLetter) > 0 ? scanner.at() : begin;
}

/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with `slashes` [\r\n/]*, or `begin`.
size_t others_end(std::string_view text, size_t begin, bool slashes = false) {
  Scanner scanner(text, begin);
  if (scanner.character() == ' ') scanner.next();
  if (scanner.skip(Class::kOther) == 0) return begin;
  while (scanner.at_line_end() || (slashes && !scanner.at_end() && scanner.character() == '/')) scanner.next();
  return scanner.at();
}

/// \s*[\r\n]+ : the spaces up to the last line end among them, or `begin`.
size_t line_ends_end(std::string_view text, size_t begin) {
  size_t end = begin;
  for (Scanner scanner(text, begin); scanner.is(Class::kSpace);) {
    const bool line_end = scanner.at_line_end();
    scanner.next();
    if (line_end) end = scanner.at();
  }
  return end;
}

size_t llama3_end(std::string_view text, size_t begin, size_t digits) {
  if (const size_t bytes = contraction(text.substr(begin), true)) return begin + bytes;
  if (const size_t end = letters_end(text, begin); end > begin) return end;
  if (Scanner scanner(text, begin); scanner.skip(Class::kNumber, digits) > 0) return scanner.at();
  if (const size_t end = others_end(text, begin); end > begin) return end;
  if (const size_t end = line_ends_end(text, begin); end > begin) return end;
  return spaces_end(text, begin);
}

/// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, or else with the first one or more and the second any
/// number; or `begin`. The first part takes what it can, and gives back up to the last character that the second takes.
size_t cased_end(std::string_view text, size_t begin, bool needs_lower) {
  size_t at = begin, behind_last_common = begin;
  for (size_t next = at; at < text.size(); at = next) {
    const LetterCase letter = case_of(next_character(text, next));
    if (letter == LetterCase::kLower || letter == LetterCase::kNone) break;
    if (letter == LetterCase::kCommon) behind_last_common = next;
  }
  const size_t upper_end = at;
  for (size_t next = at; at < text.size(); at = next) {
    const LetterCase letter = case_of(next_character(text, next));
    if (letter == LetterCase::kUpper || letter == LetterCase::kNone) break;
  }
  return at > upper_end || !needs_lower ? at : behind_last_common;
}

size_t gpt4o_end(std::string_view text, size_t begin, bool contractions, size_t digits) {
  size_t behind = begin;  // the character that a word may begin with
  const char32_t first = next_character(text, behind);
  const bool may_begin = class_of(first) != Class::kLetter && class_of(first) != Class::kNumber && !is_line_end(first);
  for (const bool needs_lower : {true, false}) {
    size_t end = may_begin ? cased_end(text, behind, needs_lower) : behind;
    if (!may_begin || end == behind) end = cased_end(text, begin, needs_lower);
    if (end == begin) continue;
    return end + (contractions ? contraction(text.substr(end), true) : 0);
  }
  if (Scanner scanner(text, begin); scanner.skip(Class::kNumber, digits) > 0) return scanner.at();
  if (const size_t end = others_end(text, begin, /*slashes=*/true); end > begin) return end;
  if (const size_t end = line_ends_end(text, begin); end > begin) return end;
  return spaces_end(text, begin);
}

}  // namespace

std::optional<SplitPattern> find_split_pattern(std::string_view expression) {
  const auto* found = std::ranges::find(kExpressions, expression, &std::pair<std::string_view, SplitPattern>::first);
  if (found == std::end(kExpressions)) return std::nullopt;
  return found->second;
}

size_t match_end(SplitPattern pattern, std::string_view text, size_t begin) {
  if (pattern == SplitPattern::kGpt2) return gpt2_end(text, begin);
  if (pattern == SplitPattern::kGpt4o) return gpt4o_end(text, begin, /*contractions=*/true, 3);
  if (pattern == SplitPattern::kTekken) return gpt4o_end(text, begin, /*contractions=*/false, 1);
  return llama3_end(text, begin, pattern == SplitPattern::kLlama3 ? 3 : 1);
}

}  // namespace remat::tokenizers
