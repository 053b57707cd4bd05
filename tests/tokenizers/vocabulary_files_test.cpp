#include "tokenizers/vocabulary_files.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/samples.h"

namespace remat::tokenizers {
namespace {

using test::Ids;

class VocabularyFiles : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load() { return load_tokenizer(directory_.path("")); }
  void write_gpt2() {
    directory_.write("vocab.json", R"({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4})");
    directory_.write("merges.txt", "#version: 0.2\na b\nĠ ab\n");
  }

  test::TemporaryDirectory directory_;
};

TEST_F(VocabularyFiles, Bert) {
  directory_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncafe\r\nCafé\n##s");
  EXPECT_EQ(load()->encode_with_special_tokens("Cafés[MASK]x"), (Ids{2, 5, 7, 4, 1, 3}));
  directory_.write("tokenizer_config.json", R"({"do_lower_case": false, "tokenizer_class": "BertTokenizerFast"})");
  EXPECT_EQ(load()->encode("Cafés cafes"), (Ids{6, 7, 5, 7}));
  directory_.write("tokenizer_config.json",
                   R"({"strip_accents": false, "cls_token": {"content": "[MASK]"}, "pad_token": null})");
  EXPECT_EQ(load()->encode_with_special_tokens("Café"), (Ids{4, 1, 3}));
  EXPECT_EQ(load()->special_ids().pad, std::nullopt);
  EXPECT_EQ(load()->special_ids().cls, 4);
}

TEST_F(VocabularyFiles, Gpt2) {
  write_gpt2();
  EXPECT_EQ(load()->encode("ab ab<|endoftext|>"), (Ids{3, 4, 5}));  // which the vocabulary lacks
  EXPECT_EQ(load()->vocabulary_size(), 6);
  EXPECT_EQ(load()->special_ids().bos, 5);
  directory_.write("tokenizer_config.json", R"({"add_prefix_space": true, "add_bos_token": true,
    "added_tokens_decoder": {"7": {"content": "<|endoftext|>", "special": true},
                             "6": {"content": "xx", "normalized": true}}})");
  EXPECT_EQ(load()->encode_with_special_tokens("abxxab"), (Ids{7, 4, 6, 4}));
}

TEST_F(VocabularyFiles, NamedTokensAreFoundAsTheConfigurationSays) {
  write_gpt2();
  directory_.write("tokenizer_config.json", R"({"pad_token": {"content": "<p>", "lstrip": true},
    "extra_special_tokens": ["<x>", {"content": "<y>", "rstrip": true}]})");
  EXPECT_EQ(load()->encode("a <p><x> <y> b"), (Ids{0, 6, 7, 2, 8, 1}));
  EXPECT_EQ(load()->special_ids().pad, 6);
  directory_.write("tokenizer_config.json", R"({"bos_token": {"content": "ab", "lstrip": true}, "eos_token": "ab"})");
  EXPECT_ERROR(load(), "names \"ab\" for several roles that differ");
}

TEST_F(VocabularyFiles, TokenizerJsonIsPreferred) {
  write_gpt2();
  directory_.write("tokenizer.json", test::kBert);
  EXPECT_EQ(load()->encode("a"), (Ids{11}));
}

TEST_F(VocabularyFiles, ClassesThatAreNotKnownAreRefused) {
  write_gpt2();
  directory_.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_ERROR(load(), "tokenizer_config.json': tokenizer_class is \"RobertaTokenizer\"");
  directory_.write("tokenizer_config.json", "{}");
  directory_.write("config.json", R"({"model_type": "roberta"})");
  EXPECT_ERROR(load(),
               "config.json': model_type is \"roberta\", whose tokenizer is known here by a tokenizer.json alone");
  directory_.write("config.json", R"({"model_type": "gpt2"})");
  directory_.write("added_tokens.json", R"({"x": 6})");
  EXPECT_ERROR(load(), "added_tokens.json'");
}

TEST_F(VocabularyFiles, DamageIsRefusedByFile) {
  EXPECT_ERROR(load(), "has no tokenizer.json, vocab.txt, vocab.json with merges.txt, or tokenizer.model");
  EXPECT_ERROR(load_tokenizer("/no/such/directory"), "'/no/such/directory' has no tokenizer.json");
  directory_.write("vocab.txt", "[UNK]\na\na\n");
  EXPECT_ERROR(load(), "vocab.txt': the token \"a\" is there twice, with the ids 1 and 2");
  directory_.write("vocab.txt", "[UNK]\n\xFF");
  EXPECT_ERROR(load(), "vocab.txt': is not UTF-8");
  directory_.write("vocab.txt", "a\n");
  EXPECT_ERROR(load(), "vocab.txt': the vocabulary lacks the token \"[UNK]\", needed for unknown words");
}

TEST_F(VocabularyFiles, MergesAreTwoTokensOnALine) {
  write_gpt2();
  for (const char* line : {"ab", "a b c", "a  b", "a b "}) {
    directory_.write("merges.txt", std::string("#version: 0.2\n") + line + "\n");
    EXPECT_ERROR(load(), "merges.txt': line 2 is") << line;
  }
  directory_.write("merges.txt", "a x\n");
  EXPECT_ERROR(load(), "vocab.json': the vocabulary lacks the token \"x\", needed by merge 0");
  directory_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "x"}}})");
  EXPECT_ERROR(load(), "added_tokens_decoder has \"-1\", not an id from 0 to");
}

}  // namespace
}  // namespace remat::tokenizers
