#include "operators/draw_section.h"

#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace remat {
namespace {

using namespace std::chrono_literals;

TEST(DrawSection, WaitsForAnotherThreadsToBeLeft) {
  std::promise<void> entered;
  std::atomic<bool> left = false;
  std::thread other([&] {
    DrawSection section;
    entered.set_value();
    std::this_thread::sleep_for(50ms);
    left = true;
    section.leave();
  });
  entered.get_future().wait();
  const DrawSection section;
  EXPECT_TRUE(left);
  EXPECT_TRUE(section.is_alone());
  other.join();
}

TEST(DrawSection, GoesOnBesideOneThatLastsAndBothKnow) {
  std::atomic<bool> waited_for = false, waits = false;
  const DrawSection section(&waited_for);
  EXPECT_TRUE(section.is_alone());
  std::thread([&] {
    const DrawSection beside(&waits);
    EXPECT_FALSE(beside.is_alone());
    EXPECT_FALSE(section.is_alone());
    EXPECT_TRUE(waited_for);
    EXPECT_FALSE(waits);
  }).join();
  EXPECT_FALSE(section.is_alone());
}

TEST(DrawSection, MayBeNested) {
  const DrawSection outer;
  {
    const DrawSection inner;
    EXPECT_TRUE(inner.is_alone());
  }
  EXPECT_TRUE(outer.is_alone());
  const auto begin = std::chrono::steady_clock::now();
  std::thread([&] { EXPECT_FALSE(DrawSection().is_alone()); }).join();
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 1s) << "the inner one has freed the outer one";
}

TEST(DrawSection, LetsThoseGoFirstThatWait) {
  std::atomic<bool> stop = false;
  std::atomic<int64_t> others = 0;
  std::thread other([&] {
    for (; !stop; ++others) const DrawSection section;
  });
  while (others == 0) std::this_thread::yield();
  // It has its turn between two of ours wherever it waits by then, which on a busy machine it may not do yet.
  int ours = 0;
  for (const int64_t before = others; others - before < 100 && ours < 1000; ++ours) {
    const DrawSection section;
    std::this_thread::sleep_for(100us);
  }
  stop = true;
  other.join();
  EXPECT_LT(ours, 1000) << "the other thread had few turns";
}

TEST(DrawSection, IsThatOfOperatorsThatDrawWhileTheyAreWatched) {
  const auto seconds_of_a_draw = [] {
    const auto begin = std::chrono::steady_clock::now();
    std::thread([] { torch::rand({1}); }).join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const DrawSection section;
  {
    const auto watch = watch_draws();
    EXPECT_EQ(watch, watch_draws());
    EXPECT_GT(seconds_of_a_draw(), 1);
  }
  EXPECT_LT(seconds_of_a_draw(), 1);
}

}  // namespace
}  // namespace remat
