#include "tokenizers/decoder.h"

#include <algorithm>
#include <charconv>

#include "tokenizers/byte_level.h"
#include "tokenizers/file.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

constexpr size_t kMostStripped = 1024;

void join(Tokens& tokens, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  tokens.assign(1, text);
}

class Spaces : public Decoder {
 public:
  void apply(Tokens& tokens) const override { join(tokens, " "); }
};

class Fuse : public Decoder {
 public:
  void apply(Tokens& tokens) const override { join(tokens, ""); }
};

class WordPieceDecoder : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(0, " ");
      }
      if (cleanup_) clean(token);
    }
  }

 private:
  /// English without the spaces that splitting has put before punctuation.
  static void clean(std::string& token) {
    constexpr std::pair<std::string_view, std::string_view> changes[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : changes) token = replace_all(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

class ByteLevelDecoder : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      std::string of_token;
      bool of_alphabet = true;
      for (size_t at = 0; at < token.size() && of_alphabet;) {
        const auto byte = byte_of_character(next_character(token, at));
        of_alphabet = byte.has_value();
        if (byte) of_token += static_cast<char>(*byte);
      }
      bytes += of_alphabet ? of_token : token;  // added tokens are texts as they are
    }
    tokens.assign(1, replace_ill_formed(bytes));
  }
};

/// "<0xE2>", "<0x82>", "<0xAC>" are "€". Where such bytes are not UTF-8, each is U+FFFD.
class ByteFallback : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens result;
    std::string bytes;
    const auto end_bytes = [&] {
      if (bytes.empty()) return;
      if (is_well_formed(bytes)) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\uFFFD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      end_bytes();
      result.push_back(std::move(token));
    }
    end_bytes();
    tokens = std::move(result);
  }

 private:
  static std::optional<uint8_t> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error != std::errc() || end != token.data() + 5) return std::nullopt;
    return byte;
  }
};

class Replace : public Decoder {
 public:
  Replace(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) token = replace_all(token, from_, to_);
  }

 private:
  std::string from_, to_;
};

/// Removes up to so many of a character from both sides of each token.
class Strip : public Decoder {
 public:
  Strip(std::string content, size_t start, size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      size_t begin = 0, end = token.size();
      const auto at = [&](size_t place) { return token.compare(place, content_.size(), content_) == 0; };
      for (size_t i = 0; i < start_ && begin + content_.size() <= end && at(begin); ++i) begin += content_.size();
      for (size_t i = 0; i < stop_ && begin + content_.size() <= end && at(end - content_.size()); ++i) {
        end -= content_.size();
      }
      token = token.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

/// `skip_first`: the one that encoding has put before the text.
class Metaspace : public Decoder {
 public:
  Metaspace(std::string replacement, bool skip_first) : replacement_(std::move(replacement)), skip_first_(skip_first) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], replacement_, i == 0 && skip_first_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool skip_first_;
};

class Sequence : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

const std::string& not_empty(const JsonNode& node) {
  if (node.text().empty()) node.refuse("is empty");
  return node.text();
}

std::unique_ptr<Decoder> read_replace(const JsonNode& node) {
  const std::string &from = not_empty(node.at("pattern").at("String")), to = node.at("content").text();
  if (to.size() > from.size()) node.at("content").refuse("is longer than what it replaces");
  return std::make_unique<Replace>(from, to);
}

std::unique_ptr<Decoder> read_strip(const JsonNode& node) {
  const auto count = [&](const char* field) {
    return static_cast<size_t>(node.at(field).integer(0, static_cast<int64_t>(kMostStripped)));
  };
  return std::make_unique<Strip>(not_empty(node.at("content")), count("start"), count("stop"));
}

std::unique_ptr<Decoder> read(const JsonNode& node) {
  const std::string& type = node.type();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "ByteLevel") return make_byte_level_decoder();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") {
    const bool never = node.text_or("prepend_scheme", "always") == "never";
    return std::make_unique<Metaspace>(node.find("replacement") ? not_empty(node.at("replacement")) : "\u2581", !never);
  }
  if (type == "Replace") return read_replace(node);
  if (type == "Strip") return read_strip(node);
  if (type == "WordPiece") return make_word_piece_decoder(node.text_or("prefix", "##"), node.flag_or("cleanup", true));
  if (type != "Sequence") node.at("type").refuse("is " + shown(type) + ", a decoder that is not known here");
  std::vector<std::unique_ptr<Decoder>> parts;
  for (const JsonNode& part : node.at("decoders").elements()) parts.push_back(read(part));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Decoder> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}

std::unique_ptr<Decoder> make_byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }

std::unique_ptr<Decoder> read_decoder(const std::optional<JsonNode>& node) {
  return node ? read(*node) : std::make_unique<Spaces>();
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the caller's

}  // namespace remat::tokenizers
