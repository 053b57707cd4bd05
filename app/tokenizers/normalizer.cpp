#include "tokenizers/normalizer.h"

#include <algorithm>

#include "tokenizers/bert_characters.h"
#include "tokenizers/file.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

constexpr size_t kMostGrowth = 64;
constexpr int kMostParts = 64;

/// `change` appends what becomes of each character.
template <class Change>
void rewrite(std::string& text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) change(result, next_character(text, at));
  text = std::move(result);
}

void lower(std::string& text) { rewrite(text, append_lower); }

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}

  void apply(std::string& text) const override {
    if (options_.clean_text) {
      rewrite(text, [](std::string& result, char32_t c) {
        if (!bert::is_removed(c)) append_character(result, is_space(c) ? U' ' : c);
      });
    }
    if (options_.handle_chinese_chars) {
      rewrite(text, [](std::string& result, char32_t c) {
        const bool chinese = bert::is_chinese(c);
        if (chinese) result += ' ';
        append_character(result, c);
        if (chinese) result += ' ';
      });
    }
    if (options_.strip_accents.value_or(options_.lowercase)) {
      text = normalize(text, NormalForm::kNfd);
      rewrite(text, [](std::string& result, char32_t c) {
        if (!bert::is_accent(c)) append_character(result, c);
      });
    }
    if (options_.lowercase) lower(text);
  }

  bool removes() const override { return options_.clean_text || options_.strip_accents.value_or(options_.lowercase); }

 private:
  BertNormalizerOptions options_;
};

class Lowercase : public Normalizer {
 public:
  void apply(std::string& text) const override { lower(text); }
};

class Normalization : public Normalizer {
 public:
  explicit Normalization(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override { text = normalize(text, form_); }

 private:
  NormalForm form_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string& text) const override { text = replace_all(text, from_, to_); }
  bool removes() const override { return to_.empty(); }

 private:
  std::string from_, to_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }
  bool removes() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->removes(); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> read_bert(const JsonNode& node) {
  BertNormalizerOptions options;
  options.clean_text = node.flag_or("clean_text", true);
  options.handle_chinese_chars = node.flag_or("handle_chinese_chars", true);
  if (const auto strip = node.find("strip_accents")) options.strip_accents = strip->flag();
  options.lowercase = node.flag_or("lowercase", true);
  return make_bert_normalizer(options);
}

/// What there is already.
struct Counts {
  int parts = 0;
  size_t growth = 1;  // how many times as long a text can become by the replacements
};

std::unique_ptr<Normalizer> read_replace(const JsonNode& node, Counts& counts) {
  const JsonNode pattern = node.at("pattern");
  const auto string = pattern.find("String");
  if (!string)
    pattern.refuse("is " + describe(pattern.value()) + " without String; regular expressions are not known here");
  const std::string &from = string->text(), to = node.at("content").text();
  if (from.empty()) string->refuse("is empty");
  counts.growth *= std::max<size_t>(1, (to.size() + from.size() - 1) / from.size());
  if (counts.growth > kMostGrowth) {
    node.refuse("makes texts more than " + std::to_string(kMostGrowth) + " times as long");
  }
  return std::make_unique<Replace>(from, to);
}

std::unique_ptr<Normalizer> read(const JsonNode& node, Counts& counts) {
  if (++counts.parts > kMostParts) node.refuse("is one part too many: there can be " + std::to_string(kMostParts));
  const std::string& type = node.type();
  if (type == "BertNormalizer") return read_bert(node);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "NFC") return std::make_unique<Normalization>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<Normalization>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<Normalization>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<Normalization>(NormalForm::kNfkd);
  if (type == "Prepend") return std::make_unique<Prepend>(node.at("prepend").text());
  if (type == "Replace") return read_replace(node, counts);
  if (type != "Sequence") node.at("type").refuse("is " + shown(type) + ", a normalizer that is not known here");
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const JsonNode& part : node.at("normalizers").elements()) parts.push_back(read(part, counts));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<BertNormalizer>(options);
}

std::unique_ptr<Normalizer> read_normalizer(const std::optional<JsonNode>& node) {
  Counts counts;
  return node ? read(*node, counts) : nullptr;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the caller's

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(from, at), text.size());
    result += text.substr(at, found - at);
    if (found < text.size()) result += to;
    at = found < text.size() ? found + from.size() : found;
  }
  return result;
}

}  // namespace remat::tokenizers
