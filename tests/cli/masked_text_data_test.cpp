#include "cli/masked_text_data.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <remat/error.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

constexpr MaskedVocabulary kVocabulary = {.first = 300, .last = 301, .mask = 302, .size = 1000};

std::vector<int64_t> bytes_of(std::string_view text) {
  std::vector<int64_t> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

class MaskedTextDataTest : public ::testing::Test {
 protected:
  MaskedTextData make(int64_t seq, uint64_t seed = 0) const { return {path_, seq, seed, kVocabulary, bytes_of}; }

  test::TemporaryDirectory directory_;
  std::string text_ = [] {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += std::to_string(i * i % 10007) + ' ';
    return text;
  }();
  std::string path_ = directory_.write("text", text_);
};

/// The text of row `row`, with every hidden token put back.
std::string restored(const Batch& batch, int64_t row) {
  const auto tokens = at::where(batch.target[row] == kNoTarget, batch.input[row][0], batch.target[row]);
  std::string text;
  for (int64_t i = 1; i + 1 < tokens.size(0); ++i) text += static_cast<char>(tokens[i].item<int64_t>());
  return text;
}

TEST_F(MaskedTextDataTest, ExamplesAreWindowsBetweenTheirFirstAndLastToken) {
  const auto batch = make(34).training_batch(1, 0, 50);
  EXPECT_EQ(batch.input.sizes(), (std::vector<int64_t>{50, 3, 34}));
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{50, 34}));
  const auto tokens = batch.input.select(1, 0);
  EXPECT_TRUE((tokens.select(1, 0) == kVocabulary.first).all().item<bool>());
  EXPECT_TRUE((tokens.select(1, 33) == kVocabulary.last).all().item<bool>());
  EXPECT_TRUE((batch.input.select(1, 1) == 0).all().item<bool>());
  EXPECT_TRUE((batch.input.select(1, 2) == 1).all().item<bool>());
  for (int64_t row = 0; row < 50; ++row) EXPECT_NE(text_.find(restored(batch, row)), std::string::npos) << row;
}

TEST_F(MaskedTextDataTest, EveryExampleHasAsManyPredictions) {
  for (const auto& [seq, expected] : std::map<int64_t, int64_t>{{3, 1}, {5, 1}, {12, 2}, {34, 5}, {128, 19}}) {
    const auto counts = (make(seq).training_batch(1, 0, 64).target != kNoTarget).sum(1);
    EXPECT_TRUE((counts == expected).all().item<bool>()) << seq << ": " << counts;
  }
}

TEST_F(MaskedTextDataTest, OfTheTokensToPredictFourFifthsAreHiddenAndATenthIsAnother) {
  const auto batch = make(102).training_batch(1, 0, 2000);  // 30,000 predictions
  const auto predicted = batch.target != kNoTarget;
  const auto seen = batch.input.select(1, 0).masked_select(predicted), was = batch.target.masked_select(predicted);
  const double all = static_cast<double>(was.size(0));
  const double hidden = (seen == kVocabulary.mask).sum().item<double>() / all;
  const double same = (seen == was).sum().item<double>() / all;
  EXPECT_NEAR(hidden, 0.8, 0.01);
  EXPECT_NEAR(same, 0.1, 0.01);
  const auto others = seen.masked_select((seen != kVocabulary.mask) & (seen != was));
  EXPECT_GT(others.max().item<int64_t>(), 900);  // of all the vocabulary
  EXPECT_LT(others.max().item<int64_t>(), kVocabulary.size);
  EXPECT_GE(others.min().item<int64_t>(), 0);
}

TEST_F(MaskedTextDataTest, EveryPlaceOfAWindowIsPredictedAsOften) {
  const auto counts = (make(22).training_batch(1, 0, 20000).target != kNoTarget).sum(0).to(at::kDouble);
  EXPECT_EQ(counts[0].item<double>() + counts[21].item<double>(), 0);
  const auto share = counts.slice(0, 1, 21) / counts.sum();
  EXPECT_LT((share - 0.05).abs().max().item<double>(), 0.003) << share;
}

TEST_F(MaskedTextDataTest, ExamplesDependOnSeedStepAndRowAlone) {
  const auto data = make(64, 7), same = make(64, 7), other = make(64, 8);
  const auto batch = data.training_batch(3, 4, 4);
  EXPECT_TRUE(at::equal(batch.input, same.training_batch(3, 4, 4).input));
  EXPECT_TRUE(at::equal(batch.target, same.training_batch(3, 4, 4).target));
  EXPECT_FALSE(at::equal(batch.input, other.training_batch(3, 4, 4).input));
  EXPECT_FALSE(at::equal(batch.input, data.training_batch(4, 4, 4).input));
  // A process's rows are those of the whole batch.
  const auto whole = data.training_batch(3, 0, 8);
  EXPECT_TRUE(at::equal(batch.input, whole.input.slice(0, 4)));
  EXPECT_TRUE(at::equal(batch.target, whole.target.slice(0, 4)));
}

TEST_F(MaskedTextDataTest, OneWindowIsHiddenInOtherWaysInOtherSteps) {
  const MaskedTextData data(directory_.write("short", "0123456789abcdefghij"), 22, 0, kVocabulary, bytes_of);
  std::set<std::string> hidden;
  for (int64_t step = 1; step <= 50; ++step) {
    const auto batch = data.training_batch(step, 0, 1);
    EXPECT_EQ(restored(batch, 0), "0123456789abcdefghij");
    std::string places;
    for (int64_t i = 0; i < 22; ++i) places += batch.target[0][i].item<int64_t>() >= 0 ? 'x' : '.';
    hidden.insert(places);
  }
  EXPECT_GT(hidden.size(), 40u);
}

TEST_F(MaskedTextDataTest, ATextThatIsTooShortIsRefused) {
  const auto path = directory_.write("short", "0123456789");
  EXPECT_ERROR(MaskedTextData(path, 13, 0, kVocabulary, bytes_of), "has 10 tokens, one example needs 11");
}

}  // namespace
}  // namespace remat::cli
