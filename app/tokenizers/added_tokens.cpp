#include "tokenizers/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "tokenizers/file.h"
#include "tokenizers/unicode.h"
#include "tokenizers/vocabulary.h"

namespace remat::tokenizers {
namespace {

/// The beginning of the character before byte `at`.
size_t before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U);
  return at;
}

char32_t character_at(std::string_view text, size_t at) { return next_character(text, at); }

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word_character(character_at(text, before(text, begin)))) ||
         (end < text.size() && is_word_character(character_at(text, end)));
}

size_t skip_spaces_back(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t previous = before(text, at);
    if (!is_space(character_at(text, previous))) break;
    at = previous;
  }
  return at;
}

size_t skip_spaces(std::string_view text, size_t at) {
  for (size_t next = at; next < text.size(); at = next) {
    if (!is_space(next_character(text, next))) break;
  }
  return at;
}

}  // namespace

AddedToken read_added_token(const JsonNode& node, int64_t id, bool special) {
  const std::string& content = node.at("content").text();
  if (content.empty()) node.at("content").refuse("is empty");
  return {content,
          id,
          node.flag_or("single_word", false),
          node.flag_or("lstrip", false),
          node.flag_or("rstrip", false),
          node.flag_or("normalized", !node.flag_or("special", special))};
}

std::vector<AddedToken> read_added_tokens(const JsonNode& list) {
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string> contents;
  for (const JsonNode& node : list.elements()) {
    tokens.push_back(read_added_token(node, node.at("id").integer(0, kMostIds - 1)));
    const std::string& content = tokens.back().content;
    if (!contents.insert(content).second) node.refuse("is " + shown(content) + ", which is there already");
  }
  return tokens;
}

void add_missing(std::vector<AddedToken>& tokens, const std::vector<AddedToken>& others, const Vocabulary& vocabulary) {
  int64_t next = vocabulary.size();
  for (const AddedToken& token : tokens) next = std::max(next, token.id + 1);
  for (const AddedToken& other : others) {
    if (other.content.empty() || std::ranges::count(tokens, other.content, &AddedToken::content) > 0) continue;
    const auto id = vocabulary.id(other.content);
    tokens.push_back(other);
    tokens.back().id = id ? *id : next++;
  }
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::stable_sort(tokens_, {}, &AddedToken::content);
  const auto same = std::ranges::unique(tokens_, {}, &AddedToken::content);
  tokens_.erase(same.begin(), same.end());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_[static_cast<uint8_t>(tokens_[i].content[0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

const AddedToken* AddedTokenFinder::find(std::string_view text, size_t at) const {
  Range range = by_first_[static_cast<uint8_t>(text[at])];
  const AddedToken* longest = nullptr;
  // The tokens of the range agree with the text in `length` bytes. One of that length is the first of them.
  for (size_t length = 1; range.begin < range.end; ++length) {
    if (tokens_[range.begin].content.size() == length) longest = &tokens_[range.begin++];
    if (at + length == text.size()) break;
    const auto byte = [length](const AddedToken& token) { return static_cast<uint8_t>(token.content[length]); };
    const auto same = std::ranges::equal_range(tokens_.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                               tokens_.begin() + static_cast<std::ptrdiff_t>(range.end),
                                               static_cast<uint8_t>(text[at + length]), {}, byte);
    range.begin = static_cast<size_t>(same.begin() - tokens_.begin());
    range.end = static_cast<size_t>(same.end() - tokens_.begin());
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text, const std::function<void(std::string_view)>& piece,
                             const std::function<void(const AddedToken&)>& token) const {
  size_t done = 0,
         spaces_end = 0;  // of the spaces that were taken last: they are not looked at for every token in them
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* found = find(text, at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->content.size();
    at = end;
    if (found->single_word && is_inside_word(text, begin, end)) continue;
    // The token before may have taken this one, or its beginning, as spaces behind it.
    if (found->lstrip) begin = done < begin ? skip_spaces_back(text, begin, done) : done;
    if (found->rstrip) end = spaces_end = end < spaces_end ? spaces_end : skip_spaces(text, end);
    if (begin >= end) continue;  // nothing is left of it
    if (done < begin) piece(text.substr(done, begin - done));
    token(*found);
    done = end;
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace remat::tokenizers
