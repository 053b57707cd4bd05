#include "tokenizers/bpe.h"

#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/samples.h"

namespace remat::tokenizers {
namespace {

using test::Ids;

Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary("file");
  for (const std::string& token : tokens) vocabulary.add(token, vocabulary.size());
  return vocabulary;
}

Ids encode(const Bpe& model, const std::string& word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

TEST(Bpe, MergesInTheOrderOfTheMergesAndFromTheLeft) {
  Bpe model(vocabulary_of({"a", "b", "c", "bc", "ab", "abc", "aa"}), {});
  model.add_merge("b", "c");
  model.add_merge("a", "b");
  model.add_merge("a", "bc");
  model.add_merge("a", "a");
  EXPECT_EQ(encode(model, "abc"), (Ids{5}));
  EXPECT_EQ(encode(model, "aaab"), (Ids{6, 4}));
  EXPECT_EQ(encode(model, "aaa"), (Ids{6, 0}));
  EXPECT_EQ(encode(model, "xaby"), (Ids{4}));  // without an unknown token
}

/// The definition: again and again the first pair of the lowest rank.
Ids merged_one_by_one(const std::string& word, const std::vector<std::pair<std::string, std::string>>& merges,
                      const Vocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (const char c : word) tokens.emplace_back(1, c);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [left, right] : merges) {
      for (size_t i = 0; i + 1 < tokens.size() && !changed; ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] += right;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        changed = true;
      }
      if (changed) break;
    }
  }
  Ids ids;
  for (const std::string& token : tokens) ids.push_back(*vocabulary.id(token));
  return ids;
}

TEST(Bpe, RandomMergesGiveWhatTheDefinitionSays) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens{"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 12; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      if (std::ranges::find(tokens, left + right) != tokens.end()) continue;
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
    Bpe model(vocabulary_of(tokens), {});
    for (const auto& [left, right] : merges) model.add_merge(left, right);
    std::string word;
    for (size_t i = random() % 40 + 1; i > 0; --i) word += "abc"[random() % 3];
    EXPECT_EQ(encode(model, word), merged_one_by_one(word, merges, model.vocabulary())) << word;
  }
}

TEST(Bpe, AWordOfAMillionCharactersTakesNoQuadraticTime) {
  Bpe model(vocabulary_of({"a", "aa", "aaaa"}), {});
  model.add_merge("a", "a");
  model.add_merge("aa", "aa");
  EXPECT_EQ(encode(model, std::string(1'000'000, 'a')), Ids(250'000, 2));
}

TEST(Bpe, UnknownCharacters) {
  const std::vector<std::string> tokens{"<unk>", "a", "<0xC3>", "<0xA9>"};
  const Bpe single(vocabulary_of(tokens), {.unknown_token = "<unk>"});
  EXPECT_EQ(encode(single, "xyaé"), (Ids{0, 0, 1, 0}));
  const Bpe fused(vocabulary_of(tokens), {.unknown_token = "<unk>", .fuse_unknown = true});
  EXPECT_EQ(encode(fused, "xyaé"), (Ids{0, 1, 0}));
  const Bpe bytes(vocabulary_of(tokens), {.unknown_token = "<unk>", .fuse_unknown = true, .byte_fallback = true});
  EXPECT_EQ(encode(bytes, "aéaè"), (Ids{1, 2, 3, 1, 0}));
}

TEST(Bpe, TokensMayBeMarkedInsideAndAtTheEnd) {
  Bpe model(vocabulary_of({"a", "##b", "##b</w>", "a</w>", "ab</w>"}),
            {.continuation_prefix = "##", .end_suffix = "</w>"});
  model.add_merge("a", "##b</w>");
  EXPECT_EQ(encode(model, "ab"), (Ids{4}));
  EXPECT_EQ(encode(model, "abb"), (Ids{0, 1, 2}));
  EXPECT_EQ(encode(model, "a"), (Ids{3}));
  EXPECT_ERROR(model.add_merge("a", "a"), "'file': merge 1 has \"a\" on its right, which does not begin with \"##\"");
}

TEST(Bpe, AWordThatIsATokenNeedsNoMerges) {
  const Bpe model(vocabulary_of({"a", "b", "ab"}), {.ignore_merges = true});
  EXPECT_EQ(encode(model, "ab"), (Ids{2}));
  EXPECT_EQ(encode(model, "aba"), (Ids{0, 1, 0}));
}

TEST(Bpe, MergesOfUnknownTokensAreRefused) {
  Bpe model(vocabulary_of({"a", "b", "ab"}), {});
  EXPECT_ERROR(model.add_merge("a", "x"),
               "[tokenizer] 'file': the vocabulary lacks the token \"x\", needed by merge 0");
  EXPECT_ERROR(model.add_merge("b", "a"), "lacks the token \"ba\", needed by merge 0");
  model.add_merge("a", "b");
  EXPECT_ERROR(model.add_merge("a", "b"), "merge 1, of \"a\" and \"b\", is there twice");
  EXPECT_ERROR(Bpe(vocabulary_of({"a"}), {.unknown_token = "<unk>"}), "lacks the token \"<unk>\"");
}

}  // namespace
}  // namespace remat::tokenizers
