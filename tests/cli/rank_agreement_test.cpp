#include "cli/rank_agreement.h"

#include <gtest/gtest.h>

#include <remat/error.h>

#include "cli/rank_threads.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

TEST(RankAgreement, AStepIsThatOfTheRankThatPeaksHighest) {
  test::on_ranks(3, [](RankGroup& ranks) {
    StepResult own;
    own.step = 4;
    own.loss = static_cast<float>(ranks.rank());
    own.seconds = 3.0 - ranks.rank();
    own.peak_bytes = ranks.rank() == 1 ? 70 : 50 + ranks.rank();
    own.baseline_bytes = 10 + ranks.rank();
    const StepResult joined = joined_result(ranks, own);
    EXPECT_EQ(joined.step, 4);
    EXPECT_EQ(joined.loss, 1);
    EXPECT_EQ(joined.seconds, 3);
    EXPECT_EQ(joined.peak_bytes, 70);
    EXPECT_EQ(joined.rank_peak_bytes, (std::vector<int64_t>{50, 70, 52}));
    if (ranks.rank() == 0) {
      EXPECT_EQ(joined.baseline_bytes, 11) << "rank 1's";
    }
  });
}

TEST(RankAgreement, AllThrowTheRefusalThatNeedsMostInItsOwnWords) {
  for (const bool sound : {true, false}) {
    test::on_ranks(3, [&](RankGroup& ranks) {
      try {
        if (ranks.rank() == 1) throw BudgetError("[budget] mine", 10, 20, std::nullopt, 40, 60.0);
        if (ranks.rank() == 2) throw BudgetError("[budget] less", 10, 20, std::nullopt, 30);
        throw BudgetError("[ranks] rank 1 is out of memory", 10, 20, std::nullopt, 90);
      } catch (const BudgetError&) {
        try {
          throw_largest_refusal(ranks, sound || ranks.rank() != 2);
        } catch (const BudgetError& largest) {
          EXPECT_STREQ(largest.what(), "[budget] mine");
          EXPECT_EQ(largest.needed_bytes(), 40);
          EXPECT_EQ(largest.needed_percent(), 60);
        }
      }
      EXPECT_EQ(ranks.is_apart(), !sound);
    });
  }
}

TEST(RankAgreement, OtherOptionsAreRefusedOnAll) {
  test::on_ranks(3, [](RankGroup& ranks) {
    check_same_options(ranks, {{"batch", 8}});
    const nlohmann::json options = {{"batch", ranks.rank() == 2 ? 4 : 8}};
    if (ranks.rank() == 2) {
      EXPECT_ERROR(check_same_options(ranks, options),
                   "rank 0 was started with batch 8 (here 4); give rank 2 the same");
    } else {
      EXPECT_ERROR(check_same_options(ranks, options), "another process was started with other options");
    }
  });
}

}  // namespace
}  // namespace remat::cli
