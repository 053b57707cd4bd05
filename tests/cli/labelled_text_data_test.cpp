#include "cli/labelled_text_data.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace remat::cli {
namespace {

constexpr int64_t kPadding = 9;

/// Text i has i + 1 tokens, which are all i, and class i % 2.
LabelledTextData make_text_data(int64_t texts, int64_t batch, uint64_t seed = 0) {
  LabelledTokens tokens{.texts = {}, .classes = {}, .padding = kPadding};
  for (int64_t i = 0; i < texts; ++i) {
    tokens.texts.emplace_back(static_cast<size_t>(i + 1), i);
    tokens.classes.push_back(i % 2);
  }
  return {std::move(tokens), {.names = {"a", "b"}, .numbers = {{"a", 0}, {"b", 1}}}, "contents", batch, seed};
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto packed = tensor.contiguous();
  return {packed.const_data_ptr<int64_t>(), packed.const_data_ptr<int64_t>() + packed.numel()};
}

/// The first token of each text, which says which one it is.
std::vector<int64_t> texts_of(const Batch& batch) { return numbers(batch.input.select(1, 0).select(1, 0)); }

TEST(LabelledTextData, TextsArePaddedToTheLongestOfTheBatch) {
  const auto batch = make_text_data(5, 3).evaluation_batch(0);
  EXPECT_EQ(numbers(batch.input.select(1, 0)), (std::vector<int64_t>{0, 9, 9, 1, 1, 9, 2, 2, 2})) << "tokens";
  EXPECT_EQ(numbers(batch.input.select(1, 1)), std::vector<int64_t>(9, 0)) << "types";
  EXPECT_EQ(numbers(batch.input.select(1, 2)), (std::vector<int64_t>{1, 0, 0, 1, 1, 0, 1, 1, 1})) << "mask";
  EXPECT_EQ(numbers(batch.target), (std::vector<int64_t>{0, 1, 0}));
}

TEST(LabelledTextData, EveryTextIsEvaluatedOnce) {
  const auto data = make_text_data(8, 3);
  ASSERT_EQ(data.evaluation_batches(), 3);
  EXPECT_EQ(texts_of(data.evaluation_batch(1)), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(texts_of(data.evaluation_batch(2)), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(make_text_data(6, 3).evaluation_batches(), 2);
}

TEST(LabelledTextData, StepsGoThroughAllTextsBeforeOneIsRepeated) {
  const auto data = make_text_data(6, 4);
  std::vector<int64_t> seen;
  for (int64_t step = 1; step <= 3; ++step) {
    for (const int64_t text : texts_of(data.training_batch(step, 0, 4))) seen.push_back(text);
  }
  const std::set<int64_t> first(seen.begin(), seen.begin() + 6), second(seen.begin() + 6, seen.end());
  EXPECT_EQ(first.size(), 6u);
  EXPECT_EQ(second.size(), 6u);
}

TEST(LabelledTextData, BatchesDependOnSeedAndStepAlone) {
  const auto data = make_text_data(50, 8), same = make_text_data(50, 8), other = make_text_data(50, 8, /*seed=*/1);
  const auto late = texts_of(data.training_batch(20, 0, 8));
  EXPECT_NE(texts_of(data.training_batch(1, 0, 8)), texts_of(data.training_batch(2, 0, 8)));
  EXPECT_EQ(late, texts_of(same.training_batch(20, 0, 8)));
  EXPECT_NE(late, texts_of(other.training_batch(20, 0, 8)));
}

TEST(LabelledTextData, PartsOfABatchAreItsRows) {
  const auto data = make_text_data(50, 8);
  const auto whole = data.training_batch(3, 0, 8), part = data.training_batch(3, 4, 4);
  EXPECT_TRUE(at::equal(part.input, whole.input.slice(0, 4)));
  EXPECT_TRUE(at::equal(part.target, whole.target.slice(0, 4)));
}

}  // namespace
}  // namespace remat::cli
