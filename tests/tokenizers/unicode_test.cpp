#include "tokenizers/unicode.h"

#include <gtest/gtest.h>

#include "tokenizers/bert_characters.h"

namespace remat::tokenizers {
namespace {

TEST(Unicode, EveryCharacterIsReadAsItIsWritten) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_character(text, c);
    ASSERT_TRUE(is_well_formed(text)) << static_cast<uint32_t>(c);
    size_t at = 0;
    ASSERT_EQ(next_character(text, at), c);
    ASSERT_EQ(at, text.size());
  }
}

TEST(Unicode, MaximalSubpartsOfIllFormedSequencesAreReplaced) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(replace_ill_formed("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replace_ill_formed("\xC0\xAF"), r + r);  // an overlong slash
  EXPECT_EQ(replace_ill_formed("\xE2\x82"), r);      // cut off
  EXPECT_EQ(replace_ill_formed("\xE2\x82z"), r + "z");
  EXPECT_EQ(replace_ill_formed("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(replace_ill_formed("\xF0\x9F\x98 \xF4\x90\x80\x80"), r + " " + r + r + r + r);
  EXPECT_EQ(replace_ill_formed("\xE0\x80\xAF\xFF"), r + r + r + r);
  EXPECT_FALSE(is_well_formed("\xF5"));
  EXPECT_EQ(replace_ill_formed("é€😀"), "é€😀");
}

TEST(Unicode, CharactersHaveClasses) {
  for (const char32_t c : {U'a', U'É', U'ж', U'א', U'あ', U'가', U'ª'}) {
    EXPECT_EQ(class_of(c), CharacterClass::kLetter) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'7', U'½', U'Ⅷ', U'٣'}) EXPECT_EQ(class_of(c), CharacterClass::kNumber);
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) {
    EXPECT_EQ(class_of(c), CharacterClass::kSpace) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'\0', U'_', U'\u0301', U'😀', U'\u200B', U'€'}) {
    EXPECT_EQ(class_of(c), CharacterClass::kOther) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'a', U'_', U'\u0301', U'٣', U'Ⓐ', U'\u200D'}) EXPECT_TRUE(is_word_character(c));
  for (const char32_t c : {U' ', U'-', U'½', U'€'}) EXPECT_FALSE(is_word_character(c));
}

TEST(Unicode, LowerCaseMayBeTwoCharacters) {
  std::string text;
  for (const char32_t c : {U'A', U'Σ', U'İ', U'ẞ', U'ǅ', U'1'}) append_lower(text, c);
  EXPECT_EQ(text, "aσi\u0307ßǆ1");
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("Å\u0323 가 ﬁ", NormalForm::kNfd), "A\u0323\u030A \u1100\u1161 ﬁ");
  EXPECT_EQ(normalize("A\u0323\u030A \u1100\u1161 ﬁ", NormalForm::kNfc), "Ạ\u030A 가 ﬁ");
  EXPECT_EQ(normalize("ﬁ²", NormalForm::kNfkc), "fi2");
  EXPECT_EQ(normalize("é²", NormalForm::kNfkd), "e\u03012");
  const std::string zeros("a\0é", 4);
  EXPECT_EQ(normalize(zeros, NormalForm::kNfd), std::string("a\0e\u0301", 5));
}

TEST(Unicode, BertGoesByUnicode8) {
  EXPECT_TRUE(bert::is_punctuation(U'$') && bert::is_punctuation(U'—') && bert::is_punctuation(U'\u166D'));
  EXPECT_TRUE(is_punctuation(U'\u2E52') && !bert::is_punctuation(U'\u2E52'));  // of Unicode 14
  EXPECT_TRUE(bert::is_accent(U'\u0301') && !bert::is_accent(U'\u1ABF') && !bert::is_accent(U'\u0903'));
  EXPECT_TRUE(bert::is_removed(U'\0') && bert::is_removed(U'\uFFFD') && bert::is_removed(U'\u200B'));
  EXPECT_FALSE(bert::is_removed(U'\t') || bert::is_removed(U'a') || bert::is_removed(U'\u0378'));
  EXPECT_TRUE(bert::is_chinese(U'中') && bert::is_chinese(U'𠮷') && !bert::is_chinese(U'あ'));
}

}  // namespace
}  // namespace remat::tokenizers
