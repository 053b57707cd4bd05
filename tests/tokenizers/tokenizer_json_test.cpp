#include "tokenizers/tokenizer_json.h"

#include <thread>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/samples.h"

namespace remat::tokenizers {
namespace {

using test::Ids;
using test::kBert;
using test::kGpt2;
using test::kLlama;
using test::load_json;
using test::with;

TEST(TokenizerJson, BertCleansLowersAndStripsAccents) {
  const auto tokenizer = load_json(kBert);
  EXPECT_EQ(tokenizer->encode("UNAFFABLE,\tCafé中 ab\u200B xyz"), (Ids{5, 6, 7, 9, 8, 10, 11, 12, 1}));
  EXPECT_EQ(tokenizer->encode_with_special_tokens("a"), (Ids{2, 11, 3}));
  EXPECT_EQ(tokenizer->encode("a  [MASK]b[SEP]"), (Ids{11, 4, 1, 3}));
  EXPECT_EQ(tokenizer->encode("[mask]").size(), 3u);
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->encode_with_special_tokens(""), (Ids{2, 3}));
  EXPECT_EQ(tokenizer->decode({2, 5, 6, 7, 9, 8, 3}), "[CLS] unaffable, cafe [SEP]");
  EXPECT_EQ(tokenizer->vocabulary_size(), 13);
  EXPECT_EQ(tokenizer->token_id("##aff"), 6);
  EXPECT_EQ(tokenizer->token_id("aff"), std::nullopt);
  const SpecialIds& ids = tokenizer->special_ids();
  EXPECT_TRUE(ids.pad == 0 && ids.unk == 1 && ids.cls == 2 && ids.sep == 3 && ids.mask == 4);
  EXPECT_TRUE(!ids.bos && !ids.eos);
}

TEST(TokenizerJson, AddedTokensThatAreNothingOrTheSameOnceNormalizedAreRefused) {
  const auto with_token = [](const std::string& tokens) {
    return load_json(with(kBert, R"("added_tokens": [)", R"("added_tokens": [)" + tokens));
  };
  const std::string a = R"({"id": 13, "content": "Foo", "normalized": true},)";
  EXPECT_EQ(with_token(a)->encode("a FOO"), (Ids{11, 13}));
  EXPECT_ERROR(with_token(a + R"({"id": 14, "content": "fo\u00f3", "normalized": true},)"),
               "the added token \"foó\" is the same as \"Foo\" once it is normalized");
  EXPECT_EQ(with_token(a + R"({"id": 14, "content": "foo", "normalized": false},)")->encode("foo"), (Ids{14}));
  EXPECT_ERROR(with_token(R"({"id": 13, "content": "\u0301", "normalized": true},)"), "nothing is left of it");
}

TEST(TokenizerJson, CasedBertKeepsCaseAndAccents) {
  const auto tokenizer = load_json(with(with(kBert, "\"lowercase\": true", "\"lowercase\": false"), "cafe", "Café"));
  EXPECT_EQ(tokenizer->encode("Café café"), (Ids{8, 1}));
}

TEST(TokenizerJson, WordsEndBehindSeparatorsAndDigitsAreWords) {
  const auto words = [](const std::string& part, const std::string& text) {
    const test::TemporaryDirectory directory;
    directory.write("part.json", part);
    std::vector<std::string> result;
    read_pre_tokenizer(JsonNode(directory.path("part.json")))->split(text, true, [&](std::string_view word) {
      result.emplace_back(word);
    });
    return result;
  };
  using Words = std::vector<std::string>;
  const std::string split = R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"})";
  EXPECT_EQ(words(split, " a b  c"), (Words{" ", "a ", "b ", " ", "c"}));
  EXPECT_EQ(words(R"({"type": "Digits", "individual_digits": true})", "a12 3b"), (Words{"a", "1", "2", " ", "3", "b"}));
  EXPECT_EQ(words(R"({"type": "Digits", "individual_digits": false})", "12½b3"), (Words{"12½", "b", "3"}));
  EXPECT_ERROR(words(with(split, "MergedWithPrevious", "MergedWithNext"), ""), "is \"MergedWithNext\"");
}

TEST(TokenizerJson, ByteLevelBpe) {
  const auto tokenizer = load_json(kGpt2);
  EXPECT_EQ(tokenizer->encode("ab ab  aé"), (Ids{6, 7, 3, 3, 1, 8}));
  EXPECT_EQ(tokenizer->encode("ab<|endoftext|>ab"), (Ids{6, 0, 6}));
  EXPECT_EQ(tokenizer->encode_with_special_tokens("ab"), (Ids{6}));
  EXPECT_EQ(tokenizer->decode({6, 7, 3, 3, 1, 8, 0}), "ab ab  aé<|endoftext|>");
  EXPECT_EQ(tokenizer->decode({4, 1}), "\uFFFDa");
  EXPECT_EQ(tokenizer->special_ids().eos, 0);
  const auto prefixed = load_json(with(kGpt2, "\"add_prefix_space\": false", "\"add_prefix_space\": true"));
  EXPECT_EQ(prefixed->encode("ab<|endoftext|>ab ab"), (Ids{7, 0, 7, 7}));
}

TEST(TokenizerJson, TokensThatNoFileNamesAreThoseOfTheClass) {
  const test::TemporaryDirectory directory;
  directory.write("tokenizer.json", kGpt2);
  const auto load = [&](const std::string& config) {
    directory.write("tokenizer_config.json", config);
    return load_tokenizer(directory.path(""))->special_ids();
  };
  EXPECT_EQ(load("{}").bos, 0);
  const SpecialIds qwen = load(R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  EXPECT_TRUE(!qwen.bos && qwen.eos == 0 && qwen.pad == 0);
  EXPECT_EQ(load(R"({"tokenizer_class": "Qwen2Tokenizer", "pad_token": null})").pad, std::nullopt);
}

TEST(TokenizerJson, BytesAsFallback) {
  const auto tokenizer = load_json(kLlama);
  EXPECT_EQ(tokenizer->encode("a b€"), (Ids{8, 5, 7, 2, 3, 4}));
  EXPECT_EQ(tokenizer->encode("aéèb"), (Ids{8, 0, 7}));  // no bytes for them, and fused
  EXPECT_EQ(tokenizer->encode("a<s>a"), (Ids{8, 1, 8}));
  EXPECT_EQ(tokenizer->encode_with_special_tokens("a"), (Ids{1, 8}));
  EXPECT_EQ(tokenizer->decode({8, 5, 7, 2, 3, 4}), "a b€");
  EXPECT_EQ(tokenizer->decode({2, 3, 7}), "\uFFFD\uFFFDb");
  EXPECT_EQ(tokenizer->special_ids().bos, 1);
}

TEST(TokenizerJson, MetaspacePutsItsCharacterBeforeTheFirstPieceAlone) {
  const std::string first = with(
      with(kLlama, "\"pre_tokenizer\": null",
           R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})"),
      "\"normalizer\"", "\"ignored\"");
  EXPECT_EQ(load_json(first)->encode("a a<s>a"), (Ids{8, 8, 1, 6}));
  EXPECT_EQ(load_json(first)->encode("<s>a"), (Ids{1, 6}));
  EXPECT_EQ(load_json(with(first, "\"first\"", "\"always\""))->encode("<s>a"), (Ids{1, 8}));
  EXPECT_EQ(load_json(with(first, "\"first\"", "\"never\""))->encode("a a"), (Ids{6, 8}));
}

TEST(TokenizerJson, IllFormedTextIsReplacedFirst) {
  const auto tokenizer = load_json(with(kLlama, "\"b\": 7", "\"\uFFFD\": 7"));
  EXPECT_EQ(tokenizer->encode("\xE2\x82"), tokenizer->encode("\uFFFD"));
  EXPECT_EQ(tokenizer->encode("\xFF"), (Ids{5, 7}));
}

TEST(TokenizerJson, IdsThatNoTokenHasAreNotDecoded) {
  const auto tokenizer = load_json(with(kBert, "\"##b\": 12", "\"##b\": 20"));
  EXPECT_EQ(tokenizer->vocabulary_size(), 21);
  for (const int64_t id : {int64_t{-1}, int64_t{15}, int64_t{21}, INT64_MAX}) {
    EXPECT_ERROR(tokenizer->decode({id}),
                 "[tokenizer] the id " + std::to_string(id) + " is that of no token; those of");
  }
}

TEST(TokenizerJson, ThreadsShareATokenizer) {
  const auto tokenizer = load_json(kGpt2);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? "ab " : "é";
  const Ids alone = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<Ids> results(4);
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, alone);
}

TEST(TokenizerJson, WhatIsNotKnownIsRefusedByName) {
  EXPECT_ERROR(load_json(with(kBert, "\"type\": \"WordPiece\", \"unk", "\"type\": \"Unigram\", \"unk")),
               "tokenizer.json': model.type is \"Unigram\"; WordPiece and BPE are known here");
  EXPECT_ERROR(load_json(with(kBert, "BertNormalizer", "Precompiled")),
               "normalizer.type is \"Precompiled\", a normalizer");
  EXPECT_ERROR(load_json(with(kBert, "BertPreTokenizer", "Punctuation")), "pre_tokenizer.type is \"Punctuation\"");
  EXPECT_ERROR(load_json(with(kBert, "TemplateProcessing", "Other")), "post_processor.type is \"Other\"");
  EXPECT_ERROR(load_json(with(kBert, "\"type\": \"WordPiece\", \"prefix\"", "\"type\": \"CTC\", \"prefix\"")),
               "decoder.type is \"CTC\"");
  EXPECT_ERROR(load_json(with(kGpt2, "\"dropout\": null", "\"dropout\": 0.1")), "model.dropout is 0.1");
  EXPECT_ERROR(load_json(with(kGpt2, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false",
                              R"({"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated")")),
               "pre_tokenizer.pattern is not one that is known here");
}

}  // namespace
}  // namespace remat::tokenizers
