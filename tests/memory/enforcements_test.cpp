#include "memory/enforcements.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "memory/fake_reclaimer.h"

namespace remat::memory {
namespace {

/// Runs a function when asked.
struct Calling : FakeReclaimer {
  bool reclaim(int64_t bytes) override {
    FakeReclaimer::reclaim(bytes);
    return action();
  }
  std::function<bool()> action;
};

TEST(Enforcements, TheSmallestLimitHoldsUntilItEnds) {
  Enforcements enforcements;
  FakeReclaimer reclaimer;
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
  auto outer = enforcements.enforce(200, reclaimer);
  auto inner = enforcements.enforce(100, reclaimer);
  auto twin = enforcements.enforce(100, reclaimer);
  EXPECT_EQ(enforcements.smallest(), 100);
  inner.reset();
  EXPECT_EQ(enforcements.smallest(), 100);
  twin.reset();
  EXPECT_EQ(enforcements.smallest(), 200);
  outer.reset();
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
}

TEST(Enforcements, ALimitCanChangeWhileItsReclaimerIsAsked) {
  Enforcements enforcements;
  Calling rising;
  FakeReclaimer other;
  rising.action = [&] {
    enforcements.set_limit(rising, 300);
    return true;
  };
  auto fixed = enforcements.enforce(200, other);
  auto handle = enforcements.enforce(100, rising);
  EXPECT_TRUE(enforcements.reclaim(1));
  EXPECT_EQ(enforcements.smallest(), 200);
  fixed.reset();
  EXPECT_EQ(enforcements.smallest(), 300);
  handle.reset();
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
}

TEST(Enforcements, ALimitMustBePositive) {
  Enforcements enforcements;
  FakeReclaimer reclaimer;
  EXPECT_THROW(enforcements.enforce(0, reclaimer), Error);
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
}

TEST(Enforcements, AsksByLimitAndStopsAtTheFirstThatFreed) {
  Enforcements enforcements;
  std::string order;
  Calling a, b, c;
  a.action = [&] { return order += 'a', false; };
  b.action = [&] { return order += 'b', true; };
  c.action = [&] { return order += 'c', true; };
  auto third = enforcements.enforce(300, c);
  auto first = enforcements.enforce(100, a);
  auto second = enforcements.enforce(200, b);
  EXPECT_TRUE(enforcements.reclaim(7));
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(a.asked, 7);
  second.reset();
  third.reset();
  EXPECT_FALSE(enforcements.reclaim(7));
}

TEST(Enforcements, TheReclaimerOfTheSmallestLimitRefuses) {
  Enforcements enforcements;
  FakeReclaimer large, small;
  auto outer = enforcements.enforce(200, large);
  auto inner = enforcements.enforce(100, small);
  try {
    enforcements.refuse(150, 60);
    FAIL() << "refuse() returned";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.budget_bytes(), 100);
    EXPECT_EQ(error.lower_bound_bytes(), 150);
  }
  EXPECT_EQ(small.refusals, 1);
  EXPECT_EQ(large.refusals, 0);
  inner.reset();
  EXPECT_NO_THROW(enforcements.refuse(150, 60));
}

TEST(Enforcements, ALimitWhoseReclaimerDoesNotRefuseIsPassed) {
  Enforcements enforcements;
  FakeReclaimer large, small;
  auto outer = enforcements.enforce(200, large);
  auto inner = enforcements.enforce(100, small);
  EXPECT_FALSE(enforcements.refuse(90, 60));  // no limit stands in the way
  small.refusing = false;
  EXPECT_TRUE(enforcements.refuse(150, 60));
  EXPECT_THROW(enforcements.refuse(250, 60), BudgetError);
  EXPECT_EQ(large.refusals, 1);
  large.refusing = false;
  EXPECT_TRUE(enforcements.refuse(250, 60));
  EXPECT_EQ(small.refusals, 0);
}

TEST(Enforcements, InAChildNoLimitIsInForceAndThoseOfTheParentMayEnd) {
  Enforcements enforcements;
  FakeReclaimer reclaimer;
  auto parents = enforcements.enforce(100, reclaimer);
  enforcements.before_fork();
  enforcements.after_fork_in_child();
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
  auto own = enforcements.enforce(200, reclaimer);
  parents.reset();
  EXPECT_EQ(enforcements.smallest(), 200);
}

TEST(Enforcements, DestructionWaitsForACallOnAnotherThread) {
  Enforcements enforcements;
  std::promise<void> entered, leave;
  std::atomic<bool> left{false};
  Calling reclaimer;
  reclaimer.action = [&] {
    entered.set_value();
    leave.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    left = true;
    return true;
  };
  auto enforcement = enforcements.enforce(100, reclaimer);
  std::thread caller([&] { enforcements.reclaim(1); });
  entered.get_future().wait();
  leave.set_value();
  enforcement.reset();
  EXPECT_TRUE(left);
  caller.join();
}

TEST(Enforcements, AnEnforcementMayEndInsideItsOwnReclaim) {
  Enforcements enforcements;
  std::unique_ptr<Ledger::Enforcement> enforcement;
  Calling reclaimer;
  reclaimer.action = [&] { return enforcement.reset(), true; };
  enforcement = enforcements.enforce(100, reclaimer);
  EXPECT_TRUE(enforcements.reclaim(1));
  EXPECT_EQ(enforcements.smallest(), INT64_MAX);
}

TEST(Enforcements, AReclaimerIsNotAskedFromInsideItself) {
  Enforcements enforcements;
  Calling reclaimer;
  reclaimer.action = [&] { return enforcements.reclaim(1); };
  auto enforcement = enforcements.enforce(100, reclaimer);
  EXPECT_FALSE(enforcements.reclaim(1));
  EXPECT_EQ(reclaimer.calls, 1);
}

}  // namespace
}  // namespace remat::memory
