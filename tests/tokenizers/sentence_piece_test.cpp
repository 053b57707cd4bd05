#include "tokenizers/sentence_piece.h"

#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/samples.h"

#ifdef REMAT_SENTENCEPIECE_TRAINER
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#endif

namespace remat::tokenizers {
namespace {

#ifdef REMAT_SENTENCEPIECE_TRAINER

/// 500 sentences of words of the letters a to e.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  Sentences() { Next(); }
  bool done() const override { return count_ > 500; }
  void Next() override {
    ++count_;
    sentence_.clear();
    for (int word = 0; word < 8; ++word) {
      for (size_t letter = random_() % 5 + 1; letter > 0; --letter) sentence_ += "abcde"[random_() % 5];
      sentence_ += ' ';
    }
  }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::mt19937 random_{1};
  std::string sentence_;
  int count_ = 0;
};

std::string train(const std::string& type) {
  Sentences sentences;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", type}, {"vocab_size", "400"}, {"byte_fallback", "true"}, {"minloglevel", "2"}}, &sentences,
      &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

TEST(SentencePiece, GivesTheIdsOfItsLibraryAndFindsControlTokens) {
  for (const char* type : {"bpe", "unigram"}) {
    const test::TemporaryDirectory directory;
    const std::string model = train(type);
    directory.write("tokenizer.model", model);
    const auto tokenizer = load_tokenizer(directory.path(""));
    sentencepiece::SentencePieceProcessor processor;
    ASSERT_TRUE(processor.LoadFromSerializedProto(model).ok());
    EXPECT_EQ(tokenizer->vocabulary_size(), processor.GetPieceSize());
    for (const char* text : {"abc dea", " a  b\ncé", "中€", ""}) {
      const auto ids = processor.EncodeAsIds(text);
      EXPECT_EQ(tokenizer->encode(text), test::Ids(ids.begin(), ids.end())) << text;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), processor.DecodeIds(ids));
    }
    const auto begin = *tokenizer->special_ids().bos, end = *tokenizer->special_ids().eos;
    test::Ids ids{begin};
    for (const int64_t id : tokenizer->encode("ab")) ids.push_back(id);
    EXPECT_EQ(tokenizer->encode_with_special_tokens("ab"), ids);
    ids.push_back(end);
    EXPECT_EQ(tokenizer->encode("<s>ab</s>"), ids);
    EXPECT_EQ(tokenizer->decode(ids), "<s>ab</s>");
    EXPECT_EQ(tokenizer->token_id("</s>"), end);
    EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
    EXPECT_ERROR(tokenizer->decode({400}), "[tokenizer] the id 400 is that of no token");
  }
}

TEST(SentencePiece, WhatIsNoModelIsRefused) {
  const test::TemporaryDirectory directory;
  directory.write("tokenizer.model", "no model");
  EXPECT_ERROR(load_tokenizer(directory.path("")), "tokenizer.model': SentencePiece refuses it");
  directory.write("tokenizer.model", "");
  EXPECT_ERROR(load_tokenizer(directory.path("")), "[tokenizer] '");
  directory.write("tokenizer.model", train("bpe").substr(0, 1000));
  EXPECT_ERROR(load_tokenizer(directory.path("")), "tokenizer.model': SentencePiece refuses it");
}

TEST(SentencePiece, MutatedModelsAreLoadedOrRefused) {
  const test::TemporaryDirectory directory;
  std::mt19937 random(5);
  for (const char* type : {"bpe", "unigram"}) {
    const std::string model = train(type);
    int loaded = 0;
    for (int i = 0; i < 500; ++i) {
      std::string mutated = model;
      for (size_t count = random() % 4 + 1; count > 0; --count) {
        mutated[random() % mutated.size()] = static_cast<char>(random());
      }
      if (random() % 4 == 0) mutated.resize(random() % mutated.size());
      std::filesystem::remove(directory.path("tokenizer.model"));
      directory.write("tokenizer.model", mutated);
      try {
        const auto tokenizer = load_tokenizer(directory.path(""));
        tokenizer->decode(tokenizer->encode("abc dea 中"));
        ++loaded;
      } catch (const Error& error) {
        EXPECT_TRUE(test::holds(error.what(), "[tokenizer] '" + directory.path("")));
      }
    }
    EXPECT_GT(loaded, 10);
    EXPECT_LT(loaded, 490);
  }
}

#else

TEST(SentencePiece, WithoutItsLibraryItSaysWhatToDo) {
  const test::TemporaryDirectory directory;
  directory.write("tokenizer.model", "");
  EXPECT_ERROR(load_tokenizer(directory.path("")), "[tokenizer] '");
}

#endif

}  // namespace
}  // namespace remat::tokenizers
