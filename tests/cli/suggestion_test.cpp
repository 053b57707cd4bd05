#include "cli/suggestion.h"

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

const std::vector<std::string> kWords = {"train", "compare", "record", "plan", "--layers", "--budget"};

TEST(SuggestionTest, FindsTheWordThatWasMeant) {
  EXPECT_EQ(closest("tran", kWords), "train");
  EXPECT_EQ(closest("tarin", kWords), "train") << "two letters exchanged are one error";
  EXPECT_EQ(closest("comapre", kWords), "compare");
  EXPECT_EQ(closest("--layrs", kWords), "--layers");
  EXPECT_EQ(closest("--bugdet", kWords), "--budget");
  EXPECT_EQ(closest("plan", kWords), "plan");
}

TEST(SuggestionTest, IsSilentWhereNothingIsNear) {
  for (const auto* word : {"", "x", "evaluate", "--verbose", "serve"}) EXPECT_EQ(closest(word, kWords), "") << word;
  EXPECT_EQ(closest("train", {}), "");
}

TEST(SuggestionTest, ReadsAsAQuestion) {
  EXPECT_EQ(did_you_mean("tran", kWords), "; did you mean train?");
  EXPECT_EQ(did_you_mean("evaluate", kWords), "");
}

}  // namespace
}  // namespace remat::cli
