#include "device/cpu_ledger.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "memory/fake_reclaimer.h"

namespace remat::memory {
namespace {

/// Says that it freed something: the next look may find that another thread has.
struct Waiting : FakeReclaimer {
  bool reclaim(int64_t) override { return true; }
};

/// Room for one of the threads at a time. Looking first and adding afterwards would let in two.
TEST(CpuLedger, ThreadsThatRaceForTheLastBytesNeverPassTheLimit) {
  CpuLedger& ledger = CpuLedger::instance();
  const int64_t base = ledger.current();
  ledger.reset_peak();
  Waiting reclaimer;
  auto enforcement = ledger.enforce(base + 100, reclaimer);
  std::atomic<int64_t> most{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      // By time and not by count: a thread must not be done before another has a core.
      for (int64_t i = 0; i % 1000 != 0 || std::chrono::steady_clock::now() < end; ++i) {
        ledger.confirm(60, ledger.charge(60));
        // The account itself, besides its own idea of its peak.
        const int64_t seen = ledger.counted();
        for (int64_t old = most; old < seen && !most.compare_exchange_weak(old, seen);) {
        }
        ledger.discharge(60);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ledger.peak(), base + 60);
  EXPECT_EQ(most, base + 60);
  EXPECT_EQ(ledger.current(), base);
}

TEST(CpuLedger, WhereTheReclaimerDoesNotRefuseAnAllocationPassesTheLimit) {
  CpuLedger& ledger = CpuLedger::instance();
  const int64_t base = ledger.current();
  FakeReclaimer reclaimer;
  reclaimer.refusing = false;
  auto enforcement = ledger.enforce(base + 100, reclaimer);
  EXPECT_EQ(ledger.charge(500), base + 500);
  EXPECT_EQ(reclaimer.calls, 1);
  reclaimer.refusing = true;
  EXPECT_THROW(ledger.charge(1), BudgetError);
  ledger.cancel(500);
}

/// As a library's thread does that runs collectives.
TEST(CpuLedger, WhatAnotherThreadIsAboutToFreeIsWaitedForBeforeARefusal) {
  CpuLedger& ledger = CpuLedger::instance();
  const int64_t base = ledger.current();
  FakeReclaimer reclaimer;
  auto enforcement = ledger.enforce(base + 100, reclaimer);
  EXPECT_EQ(ledger.charge(80), base + 80);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ledger.discharge(80);
  });
  EXPECT_EQ(ledger.charge(90), base + 90);
  other.join();
  EXPECT_THROW(ledger.charge(20), BudgetError);
  EXPECT_EQ(reclaimer.refusals, 1);
  ledger.cancel(90);
}

TEST(CpuLedger, AFailedAllocationLeavesNoTrace) {
  CpuLedger& ledger = CpuLedger::instance();
  const int64_t base = ledger.current();
  ledger.reset_peak();
  EXPECT_EQ(ledger.charge(500), base + 500);
  ledger.cancel(500);
  EXPECT_EQ(ledger.current(), base);
  EXPECT_EQ(ledger.peak(), base);
}

}  // namespace
}  // namespace remat::memory
