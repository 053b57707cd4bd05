#include "tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <string>

#include "tokenizers/bert_characters.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/file.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

class BertPreTokenizer : public PreTokenizer {
 public:
  void split(std::string_view text, bool /*first*/, const Sink& word) const override {
    size_t begin = 0;  // of the word that has not ended
    const auto end_word = [&](size_t end) {
      if (begin < end) word(text.substr(begin, end - begin));
    };
    for (size_t at = 0; at < text.size();) {
      const size_t place = at;
      const char32_t character = next_character(text, at);
      const bool punctuation = bert::is_punctuation(character);
      if (!punctuation && !is_space(character)) continue;
      end_word(place);
      if (punctuation) word(text.substr(place, at - place));
      begin = at;
    }
    end_word(text.size());
  }
};

class Split : public PreTokenizer {
 public:
  explicit Split(SplitPattern pattern) : pattern_(pattern) {}
  void split(std::string_view text, bool /*first*/, const Sink& word) const override {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = match_end(pattern_, text, begin);
      word(text.substr(begin, end - begin));
      begin = end;
    }
  }

 private:
  SplitPattern pattern_;
};

/// Each separator ends a word.
class SplitBehind : public PreTokenizer {
 public:
  explicit SplitBehind(std::string separator) : separator_(std::move(separator)) {}
  void split(std::string_view text, bool /*first*/, const Sink& word) const override {
    for (size_t begin = 0; begin < text.size();) {
      const size_t found = text.find(separator_, begin);
      const size_t end = found == std::string_view::npos ? text.size() : found + separator_.size();
      word(text.substr(begin, end - begin));
      begin = end;
    }
  }

 private:
  std::string separator_;
};

/// Numbers are words: each character of them, or each run.
class Digits : public PreTokenizer {
 public:
  explicit Digits(bool individual) : individual_(individual) {}
  void split(std::string_view text, bool /*first*/, const Sink& word) const override {
    size_t begin = 0;
    bool in_number = false;
    for (size_t at = 0; at < text.size();) {
      const size_t place = at;
      const bool number = class_of(next_character(text, at)) == CharacterClass::kNumber;
      if (place > begin && (number != in_number || (number && individual_))) {
        word(text.substr(begin, place - begin));
        begin = place;
      }
      in_number = number;
    }
    if (begin < text.size()) word(text.substr(begin));
  }

 private:
  bool individual_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(std::optional<SplitPattern> pattern, bool add_prefix_space) : add_prefix_space_(add_prefix_space) {
    if (pattern) split_.emplace(*pattern);
  }

  void split(std::string_view text, bool first, const Sink& word) const override {
    std::string prefixed;
    if (add_prefix_space_ && !text.starts_with(' ')) text = prefixed = " " + std::string(text);
    std::string characters;
    const auto map = [&](std::string_view part) {
      characters.clear();
      append_byte_characters(characters, part);
      word(characters);
    };
    if (split_) {
      split_->split(text, first, map);
    } else {
      map(text);
    }
  }

 private:
  std::optional<Split> split_;
  bool add_prefix_space_;
};

/// Spaces are another character, and each begins a word.
class Metaspace : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };

  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void split(std::string_view text, bool first, const Sink& word) const override {
    std::string replaced = replace_all(text, " ", replacement_);
    const bool prepend = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && first);
    if (prepend && !replaced.starts_with(replacement_)) replaced.insert(0, replacement_);
    const std::string_view whole = replaced;
    for (size_t begin = 0; begin < whole.size();) {
      const size_t end = split_ ? std::min(whole.find(replacement_, begin + 1), whole.size()) : whole.size();
      word(whole.substr(begin, end - begin));
      begin = end;
    }
  }

  bool asks_for_first() const override { return prepend_ == Prepend::kFirst; }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class Whole : public PreTokenizer {
 public:
  void split(std::string_view text, bool /*first*/, const Sink& word) const override { word(text); }
};

/// Each cuts what the one before has made.
class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}

  void split(std::string_view text, bool first, const Sink& word) const override { split_from(0, text, first, word); }

  bool asks_for_first() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->asks_for_first(); });
  }

 private:
  void split_from(size_t part, std::string_view text, bool first, const Sink& word) const {
    if (part == parts_.size()) return word(text);
    parts_[part]->split(text, first, [&](std::string_view piece) {
      split_from(part + 1, piece, first, word);
      first = false;
    });
  }

  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

std::unique_ptr<PreTokenizer> read_split(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  const std::string& behavior = node.at("behavior").text();
  const bool inverted = node.flag_or("invert", false);
  if (const auto separator = pattern.find("String")) {
    if (behavior != "MergedWithPrevious") {
      node.at("behavior").refuse("is " + shown(behavior) + ", not \"MergedWithPrevious\"");
    }
    if (inverted) node.at("invert").refuse("is true, which is not known here");
    if (separator->text().empty()) separator->refuse("is empty");
    return std::make_unique<SplitBehind>(separator->text());
  }
  const auto expression = pattern.find("Regex");
  const auto known = expression ? find_split_pattern(expression->text()) : std::nullopt;
  if (!known) pattern.refuse("is not one that is known here: those of GPT-2, Llama 3, Qwen 2, GPT-4o and Tekken");
  // These patterns leave no gap between matches: to take the gaps away is to take each match.
  if (behavior != "Isolated" && !(behavior == "Removed" && inverted)) {
    node.at("behavior").refuse("is " + shown(behavior) + ", not \"Isolated\", nor \"Removed\" and inverted");
  }
  if (behavior == "Isolated" && inverted) node.at("invert").refuse("is true, which is not known here");
  return std::make_unique<Split>(*known);
}

std::unique_ptr<PreTokenizer> read_metaspace(const JsonNode& node) {
  const std::string replacement = node.text_or("replacement", "\u2581");
  size_t end = 0;
  if (!replacement.empty()) next_character(replacement, end);
  if (end == 0 || end != replacement.size()) node.at("replacement").refuse("is not one character");
  // Older files have a flag.
  const std::string scheme =
      node.text_or("prepend_scheme", node.flag_or("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    node.at("prepend_scheme").refuse("is " + shown(scheme) + ", not always, first or never");
  }
  const auto prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                       : scheme == "first" ? Metaspace::Prepend::kFirst
                                           : Metaspace::Prepend::kNever;
  return std::make_unique<Metaspace>(replacement, prepend, node.flag_or("split", true));
}

/// What there is already. Each part is a call in another. A second ByteLevel would map what the first has mapped.
struct Counts {
  int parts = 0;
  int byte_levels = 0;
};

std::unique_ptr<PreTokenizer> read(const JsonNode& node, Counts& counts) {
  constexpr int most_parts = 64;
  if (++counts.parts > most_parts) node.refuse("is one part too many: there can be " + std::to_string(most_parts));
  const std::string& type = node.type();
  if (type == "BertPreTokenizer") return make_bert_pre_tokenizer();
  if (type == "Digits") return std::make_unique<Digits>(node.flag_or("individual_digits", false));
  if (type == "Metaspace") return read_metaspace(node);
  if (type == "Split") return read_split(node);
  if (type == "ByteLevel") {
    if (++counts.byte_levels > 1) node.refuse("is the second ByteLevel");
    const bool by_pattern = node.flag_or("use_regex", true);
    return make_byte_level_pre_tokenizer(by_pattern ? std::optional(SplitPattern::kGpt2) : std::nullopt,
                                         node.flag_or("add_prefix_space", true));
  }
  if (type != "Sequence") node.at("type").refuse("is " + shown(type) + ", a pre-tokenizer that is not known here");
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const JsonNode& part : node.at("pretokenizers").elements()) parts.push_back(read(part, counts));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() { return std::make_unique<BertPreTokenizer>(); }

std::unique_ptr<PreTokenizer> make_byte_level_pre_tokenizer(std::optional<SplitPattern> pattern,
                                                            bool add_prefix_space) {
  return std::make_unique<ByteLevel>(pattern, add_prefix_space);
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const std::optional<JsonNode>& node) {
  if (!node) return std::make_unique<Whole>();
  Counts counts;
  return read(*node, counts);
}

}  // namespace remat::tokenizers
