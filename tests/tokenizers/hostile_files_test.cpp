// Files that nobody would write: each is read as far as it makes sense, or refused by an Error that names it.
#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tokenizers/samples.h"

namespace remat::tokenizers {
namespace {

using test::kBert;
using test::kGpt2;
using test::kLlama;
using test::load_json;
using test::with;

TEST(HostileFiles, TextThatIsNoJson) {
  EXPECT_ERROR(load_json(kBert.substr(0, 500)), "tokenizer.json': is no JSON at byte");
  EXPECT_ERROR(load_json(""), "is no JSON");
  EXPECT_ERROR(load_json("[]"), "is an array, not an object");
  EXPECT_ERROR(load_json(kBert + std::string(1, '\0')), "has a zero byte");
  EXPECT_ERROR(load_json(std::string(1'000'000, '[')), "tokenizer.json': is nested more than 32 deep");
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
  EXPECT_ERROR(load_json(deep), "is nested more than 32 deep");
  EXPECT_ERROR(load_json(with(kBert, "\"un\"", "\"\xFF\"")), "is no JSON");
  EXPECT_ERROR(load_json("{}"), "the document has no field \"model\"");
  EXPECT_ERROR(load_json(R"({"model": 3})"), "model is 3, not an object");
}

TEST(HostileFiles, IdsThatAreNone) {
  for (const char* id :
       {"-1", "4194304", "18446744073709551615", "1e3", "1.5", "\"5\"", "null", "[5]", "99999999999999999999"}) {
    EXPECT_ERROR(load_json(with(kBert, "\"un\": 5", "\"un\": " + std::string(id))),
                 "tokenizer.json': model.vocab says that the id of \"un\" is")
        << id;
  }
  EXPECT_ERROR(load_json(with(kBert, "{\"id\": 4", "{\"id\": -4")),
               "added_tokens[2].id is -4, not an integer between 0 and");
  EXPECT_ERROR(load_json(with(kBert, "\"ids\": [2]", "\"ids\": [99]")),
               "the id 99, added around every text, is that of no token");
}

TEST(HostileFiles, Duplicates) {
  EXPECT_ERROR(load_json(with(kBert, "\"un\": 5", "\"un\": 5, \"un\": 13")), "has the name 'un' twice in one object");
  EXPECT_ERROR(load_json(with(kBert, "\"un\": 5", "\"un\": 6")), "have the same id, 6");
  EXPECT_ERROR(load_json(with(kBert, "\"content\": \"[SEP]\"", "\"content\": \"[PAD]\"")),
               "added_tokens[1] is \"[PAD]\", which is there already");
  EXPECT_ERROR(load_json(with(kBert, "{\"id\": 3", "{\"id\": 5")),
               "the added token \"[SEP]\" has the id 5, in the vocabulary it has 3");
  EXPECT_ERROR(load_json(with(kBert, "\"content\": \"[SEP]\"", "\"content\": \"[NEW]\"")),
               "the added token \"[NEW]\" has the id 3, which is that of \"[SEP]\"");
  EXPECT_ERROR(load_json(with(kGpt2, "\"a b\",", "\"a b\", \"a b\",")), "is there twice");
}

TEST(HostileFiles, Merges) {
  for (const char* merge : {"\"ab\"", "\"a b c\"", "3", "[\"a\"]", "[\"a\", 3]", "[\"a\", \"b\", \"c\"]", "null"}) {
    EXPECT_ERROR(load_json(with(kGpt2, "\"a b\",", std::string(merge) + ",")), "as merge 0, not two tokens") << merge;
  }
  EXPECT_ERROR(load_json(with(kGpt2, "\"a b\",", "\"a z\",")), "lacks the token \"z\", needed by merge 0");
  EXPECT_ERROR(load_json(with(kGpt2, "\"merges\": [", "\"merges\": {}, \"x\": [")),
               "model.merges is an object, not an array");
}

TEST(HostileFiles, PartsThatLetATextGrow) {
  const std::string replace = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaa"})";
  const std::string twice =
      R"("normalizer": {"type": "Sequence", "normalizers": [)" + replace + ", " + replace + "]}, \"was\"";
  EXPECT_ERROR(load_json(with(kLlama, "\"normalizer\"", twice)), "makes texts more than 64 times as long");
  EXPECT_ERROR(load_json(with(kLlama, "{\"String\": \" \"}", "{\"String\": \"\"}")), "pattern.String is empty");
  std::string parts = "{\"type\": \"BertPreTokenizer\"}";
  for (int i = 0; i < 100; ++i) parts += ", {\"type\": \"BertPreTokenizer\"}";
  EXPECT_ERROR(load_json(with(kBert, "{\"type\": \"BertPreTokenizer\"}",
                              "{\"type\": \"Sequence\", \"pretokenizers\": [" + parts + "]}")),
               "is one part too many: there can be 64");
  const std::string byte_level = R"({"type": "ByteLevel"})";
  EXPECT_ERROR(load_json(with(kBert, "{\"type\": \"BertPreTokenizer\"}",
                              "{\"type\": \"Sequence\", \"pretokenizers\": [" + byte_level + ", " + byte_level + "]}")),
               "pre_tokenizer.pretokenizers[1] is the second ByteLevel");
}

TEST(HostileFiles, AGigabyteIsNotRead) {
  const test::TemporaryDirectory directory;
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    directory.write(name, "");
    std::filesystem::resize_file(directory.path(name), uintmax_t{1} << 30U);  // of zeros that take no place
    EXPECT_ERROR(load_tokenizer(directory.path("")),
                 std::string(name) + "': has 1073741824 bytes, and at most 134217728");
    std::filesystem::remove(directory.path(name));
  }
  std::string values = "{\"a\": [0";
  for (int i = 0; i < 10'000'000; ++i) values += ",0";
  EXPECT_ERROR(load_json(values + "]}"), "has more than 10000000 values");
}

TEST(HostileFiles, WhatIsNoFile) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path("tokenizer.json"));
  EXPECT_ERROR(load_tokenizer(directory.path("")), "tokenizer.json' is not a regular file");
}

/// Changes a few places: other bytes, pieces cut out, doubled, or put elsewhere.
std::string mutate(std::string text, std::mt19937& random) {
  constexpr std::string_view bytes = "{}[]\",:0129-ae \\u\n\xFF\xC3";
  constexpr std::string_view words[] = {
      "null",    "-1",          "true",          "[]",     "{}", "\"\"", "9223372036854775808", "1e9", "\"a\"",
      "\"BPE\"", "\"\\u0000\"", "\"WordPiece\"", "4194303"};
  for (size_t count = random() % 4 + 1; count > 0 && !text.empty(); --count) {
    const size_t at = random() % text.size(), length = std::min<size_t>(random() % 20, text.size() - at);
    const auto kind = random() % 6;
    if (kind == 0) text[at] = bytes[random() % bytes.size()];
    if (kind == 1) text.erase(at, length);
    if (kind == 2) text.insert(at, text.substr(random() % text.size(), length));
    if (kind == 3) text.resize(std::max<size_t>(at, 1));
    if (kind >= 4) {  // a value for another
      const size_t colon = text.find(": ", at);
      if (colon == std::string::npos) continue;
      const size_t end = std::min(text.find_first_of(",}]", colon), text.size());
      text.replace(colon + 2, end - colon - 2, words[random() % std::size(words)]);
    }
  }
  return text;
}

/// Every file is loaded and used, or refused by name. Returns how many were loaded.
int load_mutated(const std::string& name, const std::string& text, const test::TemporaryDirectory& directory,
                 int count) {
  std::mt19937 random(11);
  int loaded = 0;
  for (int i = 0; i < count; ++i) {
    std::filesystem::remove(directory.path(name));  // some file systems wait for the disk where a file is overwritten
    directory.write(name, mutate(text, random));
    try {
      const auto tokenizer = load_tokenizer(directory.path(""));
      const auto ids = tokenizer->encode_with_special_tokens("UNaffable ab  [MASK]<s>a<|endoftext|>é€中\xE2 \u0301x");
      EXPECT_NO_THROW(tokenizer->decode(ids));
      for (const int64_t id : ids) EXPECT_TRUE(id >= 0 && id < tokenizer->vocabulary_size());
      ++loaded;
    } catch (const Error& error) {
      EXPECT_TRUE(test::holds(error.what(), "[tokenizer] '" + directory.path("")));
    }
  }
  return loaded;
}

TEST(HostileFiles, ThousandsOfMutatedFiles) {
  for (const std::string& text : {kBert, kGpt2, kLlama}) {
    const test::TemporaryDirectory directory;
    const int loaded = load_mutated("tokenizer.json", text, directory, 2000);
    EXPECT_GT(loaded, 50);
    EXPECT_LT(loaded, 1500);
  }
  const test::TemporaryDirectory bert, gpt2;
  bert.write("tokenizer_config.json", "{}");
  EXPECT_GT(load_mutated("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n,\na\n", bert, 1000), 10);
  gpt2.write("vocab.json", R"({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4})");
  EXPECT_GT(load_mutated("merges.txt", "#version: 0.2\na b\nĠ ab\n", gpt2, 1000), 10);
  bert.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n");
  const std::string config =
      R"({"do_lower_case": true, "strip_accents": null, "cls_token": "[CLS]", "pad_token": {"content": "[PAD]"},
    "added_tokens_decoder": {"0": {"content": "[PAD]", "special": true}, "9": {"content": "new", "lstrip": true}}})";
  EXPECT_GT(load_mutated("tokenizer_config.json", config, bert, 1000), 10);
}

}  // namespace
}  // namespace remat::tokenizers
