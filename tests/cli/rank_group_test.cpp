#include "cli/rank_group.h"

#include <csignal>

#include <gtest/gtest.h>

#include "cli/interrupt.h"
#include "cli/rank_threads.h"

namespace remat::cli {
namespace {

/// What `work` throws on each rank; empty: nothing.
std::vector<std::string> problems(size_t count, const std::function<void(RankGroup&)>& work) {
  std::vector<std::string> texts(count);
  test::on_ranks(count, [&](RankGroup& ranks) {
    try {
      work(ranks);
    } catch (const std::exception& error) {
      texts[static_cast<size_t>(ranks.rank())] = error.what();
    }
  });
  return texts;
}

TEST(RankGroup, TextsOfAnyLengthArriveOnAll) {
  const std::vector<std::string> texts = {"", "x", "exactly8", std::string(1000, 'y'), "\xff\0z"};
  test::on_ranks(texts.size(), [&](RankGroup& ranks) {
    EXPECT_EQ(ranks.gather_text(texts[static_cast<size_t>(ranks.rank())]), texts);
    EXPECT_EQ(ranks.gather_text(""), std::vector<std::string>(texts.size()));
  });
}

TEST(RankGroup, SumsAreTheSameOnAll) {
  test::on_ranks(3, [](RankGroup& ranks) {
    EXPECT_EQ(ranks.sums({0.5 * ranks.rank(), 1}), (std::vector<double>{1.5, 3}));
  });
}

TEST(RankGroup, AllKnowTheLargest) {
  test::on_ranks(3, [](RankGroup& ranks) { EXPECT_EQ(ranks.most(ranks.rank() == 1 ? 7 : 2), 7U); });
}

TEST(RankGroup, WhatFailsOnOneFailsOnAll) {
  const auto work = [](RankGroup& ranks) {
    ranks.set_apart(true);
    ranks.together("begin", [&] {
      if (ranks.rank() == 1) throw Error("[data] no file");
    });
  };
  EXPECT_EQ(problems(3, work),
            (std::vector<std::string>{"[ranks] rank 1 cannot begin: [data] no file", "[data] no file",
                                      "[ranks] rank 1 cannot begin: [data] no file"}));
  test::on_ranks(2, [&](RankGroup& ranks) {
    EXPECT_THROW(work(ranks), Error);
    EXPECT_FALSE(ranks.is_apart()) << "all have thrown";
    ranks.set_apart(true);
    ranks.together("begin", [] {});
    EXPECT_TRUE(ranks.is_apart());
  });
}

TEST(RankGroupDeathTest, ASignalOfOneRankReachesAllWithTheNextExchange) {
  const auto signalled = [] {
    catch_signals();
    const PoliteStop polite;
    bool early = false, late = true;
    test::on_ranks(2, [&](RankGroup& ranks) {
      ranks.together("begin", [] {});
      early = early || ranks.stop_signal() != 0;
      ranks.together("wait", [&] {
        if (ranks.rank() == 1) raise(SIGTERM);
      });
      late = late && ranks.stop_signal() == SIGTERM;
    });
    _exit(!early && late ? 0 : 1);
  };
  EXPECT_EXIT(signalled(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace remat::cli
