#include "data/csv.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::data {
namespace {

using Records = std::vector<std::vector<std::string>>;

Records read_csv(const std::string& contents, std::vector<int64_t>* lines = nullptr) {
  CsvReader reader("x.csv", contents);
  Records records;
  for (std::vector<std::string> fields; reader.next(fields);) {
    records.push_back(fields);
    if (lines != nullptr) lines->push_back(reader.line());
  }
  return records;
}

TEST(Csv, FieldsEndAtCommasAndLineEnds) {
  EXPECT_EQ(read_csv("a,b\nc,d\n"), (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(read_csv("a,b\r\nc,d\r\n"), (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(read_csv("a,b\nc,d"), (Records{{"a", "b"}, {"c", "d"}})) << "the last line need not end";
}

TEST(Csv, FieldsMayBeEmpty) {
  EXPECT_EQ(read_csv(",\na,\n,b\n"), (Records{{"", ""}, {"a", ""}, {"", "b"}}));
  EXPECT_EQ(read_csv("a,"), (Records{{"a", ""}}));
  EXPECT_EQ(read_csv("\"\"\n"), (Records{{""}}));
}

TEST(Csv, QuotedFieldsHoldCommasQuotesAndLineEnds) {
  EXPECT_EQ(read_csv("\"a,b\",\"say \"\"x\"\"\"\n"), (Records{{"a,b", "say \"x\""}}));
  EXPECT_EQ(read_csv("\"one\r\ntwo\nthree\",\"\"\"\"\r\n"), (Records{{"one\r\ntwo\nthree", "\""}}));
}

TEST(Csv, SpacesBelongToFields) { EXPECT_EQ(read_csv(" a , b"), (Records{{" a ", " b"}})); }

TEST(Csv, EmptyLinesAreSkipped) { EXPECT_EQ(read_csv("\n\r\na,b\n\n\nc\n\n"), (Records{{"a", "b"}, {"c"}})); }

TEST(Csv, RecordsKnowTheLineWhereTheyBegin) {
  std::vector<int64_t> lines;
  read_csv("a\n\"b\nb\"\r\n\nc\n", &lines);
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 2, 5}));
}

TEST(Csv, NothingHasNoRecords) { EXPECT_EQ(read_csv(""), Records{}); }

TEST(Csv, MistakesAreNamedWithTheirLine) {
  EXPECT_ERROR(read_csv("a,b\nc,\"d\ne\n\n"), "[data] 'x.csv' line 2: the quote that begins here does not end");
  EXPECT_ERROR(read_csv("a\n\"b\"\"\n"), "line 2: the quote that begins here does not end");
  EXPECT_ERROR(read_csv("a\n\nb \"c\""), "line 3: a quote within a field that does not begin with one");
  EXPECT_ERROR(read_csv("\"a\nb\"c,d"), "line 2: text follows the quote that ends a field");
  EXPECT_ERROR(read_csv("\"a\"\rb"), "line 1: text follows the quote that ends a field");
  EXPECT_ERROR(read_csv("a\rb\r"), "line 1: a carriage return without a line feed");
}

}  // namespace
}  // namespace remat::data
