#include "tokenizers/word_piece.h"

#include <algorithm>

namespace remat::tokenizers {
namespace {

bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U; }

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : Model(std::move(vocabulary)),
      options_(std::move(options)),
      unknown_id_(this->vocabulary().required_id(options_.unknown_token, "for unknown words")) {}

void WordPiece::encode_word(std::string_view word, std::vector<int64_t>& ids) const {
  const size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(unknown_id_);
  };
  const auto characters = std::ranges::count_if(word, [](char byte) { return !continues_character(byte); });
  if (characters > options_.most_characters) return unknown();
  for (size_t begin = 0; begin < word.size();) {
    const auto token = longest_token(word, begin);
    if (!token) return unknown();
    ids.push_back(token->first);
    begin = token->second;
  }
}

std::optional<std::pair<int64_t, size_t>> WordPiece::longest_token(std::string_view word, size_t begin) const {
  const std::string prefix = begin > 0 ? options_.continuation_prefix : "";
  // No token is longer; so a long word takes no longer than its length times that.
  const size_t most = vocabulary().longest() - std::min(vocabulary().longest(), prefix.size());
  size_t end = std::min(word.size(), begin + most);
  std::string token = prefix + std::string(word.substr(begin, end - begin));
  for (; end > begin; --end, token.pop_back()) {
    if (end < word.size() && continues_character(word[end])) continue;
    if (const auto id = vocabulary().id(token)) return std::pair(*id, end);
  }
  return std::nullopt;
}

}  // namespace remat::tokenizers
