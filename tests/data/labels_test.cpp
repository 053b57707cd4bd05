#include "data/labels.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::data {
namespace {

using Names = std::vector<std::string>;

std::vector<LabelledText> with_labels(const Names& labels) {
  std::vector<LabelledText> examples;
  for (const auto& label : labels) examples.push_back({"text", label, static_cast<int64_t>(examples.size()) + 2});
  return examples;
}

Labels find(const Names& labels, const Names& known = {}) { return find_labels("x.csv", with_labels(labels), known); }

TEST(Labels, AreDistinctAndInOrder) {
  const auto labels = find({"b", "a", "b", "c"});
  EXPECT_EQ(labels.names, (Names{"a", "b", "c"}));
  EXPECT_EQ(classes_of("x.csv", with_labels({"c", "a", "b"}), labels), (std::vector<int64_t>{2, 0, 1}));
}

TEST(Labels, IntegersAreInTheOrderOfTheirValues) {
  EXPECT_EQ(find({"10", "9", "-1"}).names, (Names{"-1", "9", "10"}));
  EXPECT_EQ(find({"10", "9", "x"}).names, (Names{"10", "9", "x"}));
}

TEST(Labels, KnownNamesKeepTheirNumbers) {
  const auto labels = find({"a", "b"}, {"c", "b", "a"});
  EXPECT_EQ(labels.names, (Names{"c", "b", "a"}));
  EXPECT_EQ(classes_of("x.csv", with_labels({"a", "b", "c"}), labels), (std::vector<int64_t>{2, 1, 0}));
}

TEST(Labels, NumbersOfKnownNamesStandForThem) {
  const auto labels = find({"0", "2"}, {"LABEL_0", "LABEL_1", "LABEL_2"});
  EXPECT_EQ(labels.names, (Names{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(classes_of("x.csv", with_labels({"2", "1"}), labels), (std::vector<int64_t>{2, 1}));
}

TEST(Labels, KnownNamesThatDoNotFitAreIgnored) {
  EXPECT_EQ(find({"a", "b"}, {"LABEL_0", "LABEL_1", "LABEL_2"}).names, (Names{"a", "b"}));
  EXPECT_EQ(find({"1", "2"}, {"LABEL_0", "LABEL_1"}).names, (Names{"1", "2"})) << "there is no 2";
  EXPECT_EQ(find({"a", "0"}, {"a", "b"}).names, (Names{"0", "a"})) << "one is a name, one is a number";
}

TEST(Labels, OneClassIsNone) {
  EXPECT_ERROR(find({"a", "a"}), "[data] 'x.csv' has the label 'a' alone; give examples of two classes or more");
  EXPECT_ERROR(find({"a", "a"}, {"b", "c"}), "has the label 'a' alone");
  EXPECT_EQ(find({"a", "a"}, {"a", "b"}).names, (Names{"a", "b"})) << "the classifier knows another";
}

TEST(Labels, OthersThanTheTrainingsAreNamed) {
  EXPECT_ERROR(classes_of("eval.csv", with_labels({"a", "c"}), find({"a", "b"})),
               "[data] 'eval.csv' line 3: the label 'c' is none of the training's, 'a', 'b'; mend it");
  Names many;
  for (int i = 0; i < 20; ++i) many.push_back(std::to_string(i));
  EXPECT_ERROR(classes_of("eval.csv", with_labels({"x"}), find(many)), ", ... (20 in all); mend it");
}

}  // namespace
}  // namespace remat::data
