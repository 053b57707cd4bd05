#include "device/cpu_allocator.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <remat/error.h>
#include <remat/memory.h>

#include "memory/fake_reclaimer.h"
#include "memory/ledger.h"

// The sanitizers' malloc ends the process where the system's returns null, unless told otherwise; and a child that was
// forked while threads ran.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1:die_after_fork=0"; }

namespace remat::memory {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

constexpr int64_t kBytesPerMiB = 1 << 20;

class CpuAllocator : public testing::Test {
 protected:
  void SetUp() override {
    start_accounting();
    release_cached();
    base_ = current();
  }
  static at::Tensor bytes(int64_t count) { return torch::empty({count}, torch::kByte); }

  int64_t base_ = 0;
};

TEST_F(CpuAllocator, RawAllocationsCount) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  for (size_t size : {size_t{100}, size_t{5'000'000}}) {
    void* memory = allocator->raw_allocate(size);
    std::memset(memory, 1, size);
    EXPECT_EQ(current(), base_ + static_cast<int64_t>(size));
    allocator->raw_deallocate(memory);
    EXPECT_EQ(current(), base_);
  }
}

TEST_F(CpuAllocator, ZeroBytesAreANullPointer) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  EXPECT_EQ(allocator->raw_allocate(0), nullptr);
  allocator->raw_deallocate(nullptr);
  auto empty = bytes(0);
  empty.resize_({10});
  EXPECT_EQ(current(), base_ + 10);
}

TEST_F(CpuAllocator, EveryBlockIsAligned) {
  std::vector<at::Tensor> tensors;
  for (int64_t size = 1; size < 40 * kBytesPerMiB; size = size * 3 + 1) {
    tensors.push_back(bytes(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors.back().data_ptr()) % c10::gAlignment, 0u) << size;
  }
}

TEST_F(CpuAllocator, CloneCopiesAndResizeMovesTheCount) {
  auto tensor = torch::arange(1000, torch::kByte);
  {
    const c10::DataPtr clone = c10::GetCPUAllocator()->clone(tensor.data_ptr(), 1000);
    EXPECT_NE(clone.get(), tensor.data_ptr());
    EXPECT_EQ(std::memcmp(clone.get(), tensor.data_ptr(), 1000), 0);
    EXPECT_EQ(current(), base_ + 2000);
  }
  EXPECT_EQ(current(), base_ + 1000);
  tensor.resize_({200'000});
  EXPECT_EQ(current(), base_ + 200'000);
  tensor.resize_({10});
  tensor.storage().unsafeGetStorageImpl()->reset();
  EXPECT_EQ(current(), base_);
}

TEST_F(CpuAllocator, WorkersOfAParallelRegionMayAllocate) {
  at::parallel_for(0, 64, 1, [](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) c10::GetCPUAllocator()->allocate(static_cast<size_t>(i) * 5000);
  });
  EXPECT_EQ(current(), base_);
}

TEST_F(CpuAllocator, FreedBlocksAreCachedUntilReleased) {
  if (!kCaches) GTEST_SKIP() << "sanitizers get every block through malloc";
  bytes(8 * kBytesPerMiB);
  EXPECT_GE(cached(), 8 * kBytesPerMiB);
  EXPECT_EQ(current(), base_);
  auto again = bytes(8 * kBytesPerMiB);
  EXPECT_LT(cached(), kBytesPerMiB);
  again.reset();
  release_cached();
  EXPECT_EQ(cached(), 0);
}

TEST_F(CpuAllocator, TensorsAndCacheStayWithinAnEighthOfAnEnforcedLimit) {
  if (!kCaches) GTEST_SKIP() << "sanitizers get every block through malloc";
  { auto wide = bytes(64 * kBytesPerMiB); }
  FakeReclaimer reclaimer;
  const int64_t enforced = base_ + 48 * kBytesPerMiB;
  const int64_t limit = enforced + enforced / 8;
  auto enforcement = Ledger::of(c10::kCPU).enforce(enforced, reclaimer);
  EXPECT_LE(current() + cached(), limit);
  std::mt19937 random(1);
  std::vector<at::Tensor> live;
  int64_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    // Mixed sizes split the cache, so that it has to be given back for the larger ones.
    if (live.size() < 12)
      live.push_back(bytes(1 + static_cast<int64_t>(random() % (i % 5 == 0 ? 4 * kBytesPerMiB : 200'000))));
    ASSERT_LE(current() + cached(), limit);
    most = std::max(most, current() + cached());
    if (random() % 2 == 0) live.erase(live.begin() + static_cast<int64_t>(random() % live.size()));
  }
  EXPECT_GT(most, limit - kBytesPerMiB) << "the limit was never near: the test tests nothing";
}

TEST_F(CpuAllocator, FailureIsPyTorchsOwnAndLeavesTheAccountRight) {
  reset_peak();
  for (int64_t size : {int64_t{1} << 46, INT64_MAX}) {
    try {
      bytes(size);
      FAIL() << "the system gave " << size << " bytes";
    } catch (const Error&) {
      FAIL() << "not a budget's refusal";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("DefaultCPUAllocator: can't allocate memory"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(current(), base_);
    EXPECT_EQ(peak(), base_);
  }
  // More than any signed count can say.
  EXPECT_THROW(c10::GetCPUAllocator()->raw_allocate(SIZE_MAX - 5), c10::Error);
  EXPECT_EQ(current(), base_);
  EXPECT_NO_THROW(bytes(kBytesPerMiB));
}

/// Frees tensors where the system has no memory, too.
struct GivesBlocks : FakeReclaimer {
  bool reclaim_block(int64_t bytes) override { return reclaim(bytes); }
};

TEST_F(CpuAllocator, EvictsWhereAddressSpaceIsShort) {
  if (!kCaches) GTEST_SKIP() << "sanitizers map terabytes";
  GivesBlocks reclaimer;
  for (int i = 0; i < 2; ++i) reclaimer.tensors.push_back(bytes(200 * kBytesPerMiB));
  const auto enforcement = Ledger::of(c10::kCPU).enforce(int64_t{1} << 40, reclaimer);
  rlimit old{};
  getrlimit(RLIMIT_AS, &old);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit tight{static_cast<rlim_t>(pages * 4096 + 64 * kBytesPerMiB), old.rlim_max};
  setrlimit(RLIMIT_AS, &tight);
  at::Tensor fits;
  std::string message;
  try {
    fits = bytes(150 * kBytesPerMiB);  // and 128 MiB are left to others
    bytes(int64_t{2} << 30);
  } catch (const std::exception& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_AS, &old);
  ASSERT_TRUE(fits.defined()) << message;
  EXPECT_TRUE(reclaimer.tensors.empty());
  EXPECT_EQ(current(), base_ + 150 * kBytesPerMiB);
  EXPECT_NE(message.find("the process may map "), std::string::npos) << message;
  EXPECT_NE(message.find("(1099511627776 bytes) is more than there is: give "), std::string::npos) << message;
}

/// Small blocks come from malloc; the address space that the arena does not need must not be missing there.
TEST_F(CpuAllocator, TheCacheIsGivenBackForSmallBlocksToo) {
  if (!kCaches) GTEST_SKIP() << "sanitizers get every block through malloc";
  bytes(8 * kBytesPerMiB);
  rlimit old{};
  getrlimit(RLIMIT_AS, &old);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit tight{static_cast<rlim_t>(pages * 4096 + 4 * kBytesPerMiB), old.rlim_max};
  std::vector<at::Tensor> small;
  setrlimit(RLIMIT_AS, &tight);
  try {
    for (int i = 0; i < 4000; ++i) small.push_back(bytes(50'000));
  } catch (const std::exception&) {
  }
  setrlimit(RLIMIT_AS, &old);
  EXPECT_EQ(small.size(), 4000u);
}

/// A data loader's workers are forked while other threads allocate.
TEST_F(CpuAllocator, AForkedChildCanAllocate) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) bytes(kBytesPerMiB);
  });
  int served = 0;
  constexpr int kChildren = 100;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // ends a child that waits for a lock for ever
      bytes(kBytesPerMiB);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) break;
    ++served;
  }
  stop = true;
  other.join();
  EXPECT_EQ(served, kChildren);
}

}  // namespace
}  // namespace remat::memory
