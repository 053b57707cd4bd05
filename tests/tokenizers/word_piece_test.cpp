#include "tokenizers/word_piece.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/samples.h"

namespace remat::tokenizers {
namespace {

using test::Ids;

Ids encode(const std::string& word, WordPieceOptions options = {}) {
  Vocabulary vocabulary("file");
  for (const char* token : {"[UNK]", "a", "ab", "##b", "##bc", "é", "##é"}) vocabulary.add(token, vocabulary.size());
  const WordPiece model(std::move(vocabulary), std::move(options));
  Ids ids{7};
  model.encode_word(word, ids);
  EXPECT_EQ(ids[0], 7);
  return {ids.begin() + 1, ids.end()};
}

TEST(WordPiece, TakesTheLongestTokenFromTheLeft) {
  EXPECT_EQ(encode("abbc"), (Ids{2, 4}));
  EXPECT_EQ(encode("abc"), (Ids{0}));  // "ab" leaves "c", and there is no way back
  EXPECT_EQ(encode("éébc"), (Ids{5, 6, 4}));
}

TEST(WordPiece, WordsOfMoreCharactersAreUnknown) {
  std::string word = "a";
  for (int i = 0; i < 99; ++i) word += "é";
  EXPECT_EQ(encode(word).size(), 100u);
  EXPECT_EQ(encode(word + "b"), (Ids{0}));
  EXPECT_EQ(encode("abb", {.most_characters = 2}), (Ids{0}));
}

TEST(WordPiece, ALongWordTakesNoQuadraticTime) {
  EXPECT_EQ(encode("a" + std::string(2'000'000, 'b'), {.most_characters = INT32_MAX}).size(), 2'000'000u);
}

TEST(WordPiece, NeedsItsUnknownToken) {
  EXPECT_ERROR(encode("a", {.unknown_token = "<unk>"}), "'file': the vocabulary lacks the token \"<unk>\"");
}

}  // namespace
}  // namespace remat::tokenizers
