#include "data/labelled_text.h"

#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::data {
namespace {

/// "line:label:text" of each example.
std::vector<std::string> read_texts(const std::string& path, const std::string& contents, const Columns& columns = {}) {
  std::vector<std::string> lines;
  for (const auto& [text, label, line] : read_labelled_texts(path, contents, columns)) {
    lines.push_back(std::to_string(line) + ":" + label + ":" + text);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LabelledText, ColumnsAreFoundByName) {
  EXPECT_EQ(read_texts("x.csv", "text,label\nhello,a\n\"b, c\",b\n"), (Lines{"2:a:hello", "3:b:b, c"}));
  EXPECT_EQ(read_texts("x.csv", "id,label,text\n1,a,hello\n"), (Lines{"2:a:hello"}));
  EXPECT_EQ(read_texts("x.csv", "kind,words\na,hello\n", {.text = "words", .label = "kind"}), (Lines{"2:a:hello"}));
}

TEST(LabelledText, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_EQ(read_texts("x.csv", "\xEF\xBB\xBFtext,label\nhello,a\n"), (Lines{"2:a:hello"}));
  EXPECT_EQ(read_texts("x.jsonl", "\xEF\xBB\xBF{\"text\": \"hello\", \"label\": \"a\"}"), (Lines{"1:a:hello"}));
}

TEST(LabelledText, LabelsOfObjectsAreStringsOrIntegers) {
  EXPECT_EQ(
      read_texts("x.jsonl", "{\"text\": \"\\u00e9\", \"label\": -3}\n{\"label\": \"a\", \"text\": \"\", \"id\": 7}\n"),
      (Lines{"1:-3:\xC3\xA9", "2:a:"}));
  EXPECT_EQ(read_texts("x.jsonl", "{\"t\": \"x\", \"l\": 0}", {.text = "t", .label = "l"}), (Lines{"1:0:x"}));
  for (const char* label : {"1.5", "true", "null", "[1]", "{}"}) {
    EXPECT_ERROR(read_texts("x.jsonl", "{\"text\": \"a\", \"label\": " + std::string(label) + "}"),
                 "line 1: 'label' is ");
  }
  EXPECT_ERROR(read_texts("x.jsonl", "{\"text\": 5, \"label\": 1}"), "line 1: 'text' is number; write a string");
}

TEST(LabelledText, WhatIsMissingIsNamed) {
  EXPECT_ERROR(
      read_texts("x.csv", "sentence,label\na,b\n"),
      "[data] 'x.csv' line 1: there is no column 'text', but 'sentence', 'label'; name one with --text-column");
  EXPECT_ERROR(read_texts("x.csv", "text,class\na,b\n"), "name one with --label-column");
  EXPECT_ERROR(read_texts("x.csv", "text,label,text\na,b,c\n"), "line 1: there are 2 columns 'text'");
  EXPECT_ERROR(read_texts("x.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"x\": 1}"),
               "[data] 'x.jsonl' line 2: the object has no 'label', but 'text', 'x'; name one with --label-column");
  EXPECT_ERROR(read_texts("x.jsonl", "{}"), "the object has no 'text'; name one with --text-column");
}

TEST(LabelledText, RecordsHaveAFieldForEachColumn) {
  EXPECT_ERROR(read_texts("x.csv", "text,label\na,b\nc,d,e\n"), "'x.csv' line 3: there are 3 fields, and 2 columns");
  EXPECT_ERROR(read_texts("x.csv", "text,label\na\n"), "line 2: there are 1 fields, and 2 columns");
}

TEST(LabelledText, LabelsAreNotEmpty) {
  EXPECT_ERROR(read_texts("x.csv", "text,label\na,b\nc,\n"), "line 3: the label is empty");
  EXPECT_ERROR(read_texts("x.jsonl", "{\"text\": \"a\", \"label\": \"\"}"), "line 1: the label is empty");
}

TEST(LabelledText, FilesWithoutExamplesAreRefused) {
  EXPECT_ERROR(read_texts("x.csv", ""), "[data] 'x.csv' is empty");
  EXPECT_ERROR(read_texts("x.csv", "\n\n"), "'x.csv' has no examples");
  EXPECT_ERROR(read_texts("x.csv", "text,label\n"), "'x.csv' has no examples");
  EXPECT_ERROR(read_texts("x.jsonl", " \n"), "'x.jsonl' has no examples");
}

TEST(LabelledText, OtherKindsOfFilesAreRefused) {
  EXPECT_ERROR(read_texts("x.txt", "text,label\na,b\n"), "'x.txt' is neither a .csv nor a .jsonl file");
  EXPECT_ERROR(read_texts("csv", "text,label\na,b\n"), "is neither");
}

TEST(LabelledText, ContentsAreUtf8) {
  EXPECT_ERROR(read_texts("x.csv", "text,label\na,b\n\"c\n\xFF\",d\n"), "'x.csv' line 4: the line is not UTF-8");
  EXPECT_ERROR(read_texts("x.jsonl", "{\"text\": \"\xC3\", \"label\": 1}"), "line 1: the line is not UTF-8");
}

/// Bytes replaced, left out, put in, or repeated from elsewhere.
std::string mutate(std::string text, std::mt19937& random) {
  constexpr std::string_view kBytes = "\"\"\",,\n\r{}[]:\\\xC3\xA9\xFF ax0-";
  for (auto left = random() % 4 + 1; left > 0; --left) {
    const size_t at = random() % (text.size() + 1), length = random() % 6;
    const std::string other(1, kBytes[random() % kBytes.size()]);
    switch (random() % 4) {
      case 0:
        text.replace(at, 1, other);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, other);
        break;
      default:
        text.insert(random() % (text.size() + 1), text.substr(at, length));
        break;
    }
  }
  return text;
}

TEST(LabelledText, MutatedFilesGiveExamplesOrErrors) {
  const std::string csv = "id,text,label\r\n1,\"a, \"\"b\"\"\nc\",x\r\n2,d \xC3\xA9,y\r\n\r\n3,\"\",x\r\n";
  const std::string jsonl =
      "{\"text\": \"a \\\"b\\\" \xC3\xA9\", \"label\": \"x\"}\n{\"text\": \"\", \"label\": -1}\n\n";
  std::mt19937 random(0);
  int read_well = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool is_csv = i % 2 == 0;
    const auto contents = mutate(is_csv ? csv : jsonl, random);
    try {
      for (const auto& example : read_labelled_texts(is_csv ? "x.csv" : "x.jsonl", contents, {})) {
        EXPECT_FALSE(example.label.empty());
        EXPECT_LE(example.text.size(), contents.size());
        EXPECT_GE(example.line, 1);
      }
      ++read_well;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(is_csv ? "[data] 'x.csv' " : "[data] 'x.jsonl' "));
      ++refused;
    }
  }
  EXPECT_GT(read_well, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace remat::data
