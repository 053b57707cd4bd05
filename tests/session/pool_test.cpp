// Sessions that share a pool's bytes: in turn, at once, and those that have to wait.
#include <remat/pool.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/compare.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kMiB = int64_t{1} << 20;

/// A model whose step allocates nothing that stays, so that threads need no memory outside of their steps.
struct Training {
  nn::Sequential model;
  std::vector<at::Tensor> inputs;                  ///< of several sizes
  std::vector<std::vector<at::Tensor>> gradients;  ///< plain's, for each

  explicit Training(std::vector<int64_t> batches, int64_t width = 64, int depth = 8) {
    for (int i = 0; i < depth; ++i) {
      model->push_back(nn::Linear(width, width));
      model->push_back(nn::GELU());
    }
    for (const int64_t batch : batches) {
      inputs.push_back(torch::randn({batch, width}));
      run(inputs.size() - 1);
      auto& plain = gradients.emplace_back();
      for (const auto& parameter : model->parameters()) plain.push_back(parameter.grad().clone());
    }
  }

  void run(size_t size) {
    for (auto& parameter : model->parameters()) {
      const torch::NoGradGuard no_grad;
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
    }
    model->forward(inputs[size]).pow(2).mean().backward();
  }

  bool has_plains_bits(size_t size) const {
    const auto parameters = model->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!same_bits(parameters[p].grad(), gradients[size][p])) return false;
    }
    return true;
  }

  StepReport in(Session& session, size_t size = 0) {
    auto step = session.step();
    run(size);
    const StepReport report = step.end();
    EXPECT_TRUE(has_plains_bits(size)) << "step " << report.step;
    EXPECT_LE(report.peak_bytes, report.budget_bytes) << "step " << report.step;
    return report;
  }

  /// What its step takes in plain beyond what is alive.
  int64_t plain_bytes() {
    Session session;
    in(session);
    return in(session).plain_activation_peak_bytes();
  }
};

/// Ends the process where `work` does not end: threads that wait for each other cannot be asked to stop.
void within_two_minutes(const std::function<void()>& work) {
  std::promise<void> ended;
  std::thread watchdog([done = ended.get_future()] {
    if (done.wait_for(std::chrono::minutes(2)) == std::future_status::ready) return;
    std::cerr << "the threads wait for each other" << std::endl;
    std::abort();
  });
  work();
  ended.set_value();
  watchdog.join();
}

void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::yield();
}

TEST(Pool, StepsInTurnHaveAllThatIsFree) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training actor({256}), learner({512});
  const int64_t taken = learner.plain_bytes();
  const Pool pool(Budget::bytes(memory::current() + taken * 3 / 4));
  Session first({.budget = pool}), second({.budget = pool});
  for (int i = 0; i < 4; ++i) {
    for (const StepReport& report : {actor.in(first), learner.in(second)}) {
      EXPECT_EQ(report.budget_bytes, pool.bytes());
      EXPECT_EQ(report.granted_bytes, pool.bytes() - report.baseline_bytes);
      EXPECT_EQ(report.waited_seconds, 0);
    }
  }
  EXPECT_GT(second.report().values_dropped, 0);
  EXPECT_EQ(first.report().values_dropped, 0);
  EXPECT_EQ(second.report().decided_by, "auto") << second.report().decision_reason;
}

TEST(Pool, AStepWaitsForTheBytesOfAnotherAndThenTheyDivideThem) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training a({256}), b({256});
  const Pool pool(Budget::bytes(memory::current() + a.plain_bytes() * 3 / 2));
  Session ours({.budget = pool}), theirs({.budget = pool});
  within_two_minutes([&] {
    a.in(ours);
    b.in(theirs);
    StepReport waited;
    {
      auto step = ours.step();  // alone, and so with all
      EXPECT_EQ(pool.running(), 1);
      std::thread thread([&] { waited = b.in(theirs); });
      wait_until([&] { return pool.waiting() == 1; });
      a.run(0);
      EXPECT_EQ(pool.running(), 1);
      step.end();
      thread.join();
    }
    EXPECT_GT(waited.waited_seconds, 0);
    EXPECT_EQ(ours.report().waited_seconds, 0);
    auto step = ours.step();  // it has met the other one
    StepReport beside;
    std::thread([&] { beside = b.in(theirs); }).join();  // while this one is in progress
    a.run(0);
    const StepReport report = step.end();
    EXPECT_TRUE(a.has_plains_bits(0));
    EXPECT_EQ(beside.waited_seconds, 0);
    EXPECT_LE(report.granted_bytes + beside.granted_bytes, pool.bytes() - report.baseline_bytes);
    EXPECT_GT(report.granted_bytes, 0);
    EXPECT_EQ(beside.decided_by, "auto") << beside.decision_reason;
    EXPECT_GT(report.values_dropped + beside.values_dropped, 0) << "two of them do not fit in plain";
    a.in(ours);
    const StepReport alone = a.in(ours);
    EXPECT_EQ(alone.granted_bytes, pool.bytes() - alone.baseline_bytes) << "the other one is not there any more";
  });
}

TEST(Pool, AFirstStepRunsAlone) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training a({64}), b({64});
  const Pool pool(Budget::bytes(memory::current() + 64 * kMiB));
  Session ours({.budget = pool}), theirs({.budget = pool});
  within_two_minutes([&] {
    StepReport waited;
    auto step = ours.step();
    std::thread thread([&] { waited = b.in(theirs); });
    wait_until([&] { return pool.waiting() == 1; });
    a.run(0);
    step.end();
    thread.join();
    EXPECT_GT(waited.waited_seconds, 0);
    a.in(ours);
    const StepReport met = a.in(ours);
    EXPECT_EQ(met.waited_seconds, 0);
  });
}

TEST(Pool, ManyThreadsShareItWithPlainsBits) {
  memory::start_accounting();
  torch::manual_seed(3);
  constexpr size_t kThreads = 6;
  std::vector<Training> trainings;
  for (size_t i = 0; i < kThreads; ++i) {
    trainings.emplace_back(std::vector<int64_t>{64 << (i % 3), 256, 96}, 64, 4 + static_cast<int>(i));
  }
  const int64_t largest = trainings.back().plain_bytes();
  const Pool pool(Budget::bytes(memory::current() + 2 * largest));
  std::atomic<int> refused_alone{0}, different{0}, completed{0};
  memory::reset_peak();
  within_two_minutes([&] {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937 random(static_cast<unsigned>(i));
        Session session({.budget = pool});
        for (int repeat = 0; repeat < 25; ++repeat) {
          const size_t size = random() % 3;
          const auto try_step = [&] {
            try {
              const auto step = session.step();
              trainings[i].run(size);
              return true;
            } catch (const BudgetError&) {  // larger than all before, beside others
              return false;
            }
          };
          if (!try_step() && !try_step()) ++refused_alone;
          ++completed;
          if (!trainings[i].has_plains_bits(size)) ++different;
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
  EXPECT_EQ(completed, 25 * static_cast<int>(kThreads));
  EXPECT_EQ(refused_alone, 0);
  EXPECT_EQ(different, 0);
  EXPECT_LE(memory::peak(), pool.bytes());
  EXPECT_EQ(pool.running() + pool.waiting(), 0);
}

TEST(Pool, WhatDoesNotFitAloneIsRefusedWithTheSmallestThatWorks) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training training({512});
  const int64_t taken = training.plain_bytes(), before = memory::current();
  const auto needed = [&](int64_t bytes) -> std::optional<int64_t> {
    const Pool pool(Budget::bytes(bytes));
    Session session({.budget = pool});
    try {
      for (int i = 0; i < 3; ++i) training.in(session);
    } catch (const BudgetError& error) {
      EXPECT_TRUE(holds(error.what(), "the pool has " + format_exact_bytes(bytes))) << error.what();
      EXPECT_EQ(pool.running(), 0);
      return error.needed_bytes();
    }
    return std::nullopt;
  };
  int64_t bytes = before + taken / 16;
  int refusals = 0;
  for (; refusals < 20; ++refusals) {
    const auto next = needed(bytes);
    if (!next) break;
    ASSERT_GT(*next, bytes);
    bytes = *next;
  }
  EXPECT_GT(refusals, 0);
  EXPECT_LT(bytes, before + taken);
}

TEST(Pool, AStepThatFailsGivesItsBytesBack) {
  Training training({64});
  const Pool pool(Budget::bytes(memory::current() + 64 * kMiB));
  Session session({.budget = pool}), other({.budget = pool});
  EXPECT_THROW(
      {
        const auto step = session.step();
        throw std::runtime_error("by the user");
      },
      std::runtime_error);
  EXPECT_EQ(pool.running(), 0);
  EXPECT_THROW(
      {
        const auto step = session.step();
        torch::empty({128 * kMiB}, at::kByte);
      },
      BudgetError);
  EXPECT_EQ(pool.running(), 0);
  EXPECT_EQ(training.in(other).waited_seconds, 0);
}

TEST(Pool, AStepThatCannotBeginGivesItsBytesBack) {
  const auto held = torch::empty({4 * kMiB}, at::kByte);
  const Pool pool(Budget::bytes(kMiB));
  Session session({.budget = pool});
  EXPECT_THROW((void)session.step(), BudgetError);
  EXPECT_EQ(pool.running() + pool.waiting(), 0);
}

TEST(Pool, AStepInsideAnotherOfItsThreadDoesNotWaitForIt) {
  const Pool pool(Budget::bytes(memory::current() + 64 * kMiB));
  Session outer({.budget = pool}), inner({.budget = pool});
  within_two_minutes([&] {
    const auto step = outer.step();
    EXPECT_ERROR(inner.step(), "a step or policy scope of this thread is in progress");
    EXPECT_EQ(pool.running(), 1);
    EXPECT_EQ(pool.waiting(), 0);
  });
}

/// The steps have the same limit, and the older one would be asked first.
TEST(Pool, ARefusalIsOfTheStepThatAllocates) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training a({64}), b({64});
  const Pool pool(Budget::bytes(memory::current() + 64 * kMiB));
  Session ours({.budget = pool, .name = "ours"}), theirs({.budget = pool, .name = "theirs"});
  within_two_minutes([&] {
    a.in(ours);
    b.in(theirs);
    {  // so that each knows of the other
      auto step = ours.step();
      std::thread thread([&] { b.in(theirs); });
      wait_until([&] { return pool.waiting() == 1; });
      a.run(0);
      step.end();
      thread.join();
    }
    auto step = ours.step();
    std::string said;
    std::thread([&] {
      const auto other = theirs.step();
      said = error_of([] { torch::empty({128 * kMiB}, at::kByte); });
    }).join();
    EXPECT_TRUE(holds(said, "of theirs is out of memory"));
    EXPECT_TRUE(holds(said, "the pool, for all its steps, has "));
    EXPECT_TRUE(holds(said, "this session's next step runs alone"));
    a.run(0);
    EXPECT_TRUE(step.end().completed);
    const StepReport alone = b.in(theirs);
    EXPECT_EQ(alone.granted_bytes, pool.bytes() - alone.baseline_bytes);
  });
}

TEST(Pool, ASessionMayJoinAndLeaveBetweenSteps) {
  memory::start_accounting();
  torch::manual_seed(3);
  Training training({256});
  const Pool pool(Budget::bytes(memory::current() + 64 * kMiB));
  Session session({.budget = Budget::bytes(memory::current() + 32 * kMiB)});
  EXPECT_EQ(training.in(session).granted_bytes, 0);
  session.set_budget(pool);
  EXPECT_EQ(session.budget_bytes(), pool.bytes());
  StepReport report = training.in(session);
  EXPECT_EQ(report.granted_bytes, pool.bytes() - report.baseline_bytes);
  EXPECT_EQ(report.budget_bytes, pool.bytes());
  session.set_budget("64MiB");
  EXPECT_EQ(training.in(session).granted_bytes, 0);
}

TEST(Pool, IsOfBytesAndForSessionsOfOneProcess) {
  for (const char* const text : {"40%", "device", "pressure"}) EXPECT_ERROR(Pool(Budget(text)), "give bytes");
  const Pool pool("64MiB");
  EXPECT_EQ(pool.bytes(), 64 * kMiB);
  EXPECT_EQ(Budget(pool).to_string(), "a pool of 64.0 MiB");
  EXPECT_ERROR(Pool(Budget(pool)), "has no meaning");
  EXPECT_EQ(Pool(pool), pool);
  EXPECT_NE(Pool("64MiB"), pool);
  const Ranks ranks{.gather = [](const std::vector<int64_t>& own) { return std::vector<std::vector<int64_t>>{own}; }};
  EXPECT_ERROR(Session({.budget = pool, .ranks = ranks}), "would wait for each other");
  Session session({.ranks = ranks});
  EXPECT_ERROR(session.set_budget(pool), "would wait for each other");
}

}  // namespace
}  // namespace remat::test
