#include "device/adopted_storages.h"

#include <array>
#include <thread>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/memory.h>

#include "memory/fake_reclaimer.h"
#include "memory/ledger.h"

namespace remat::memory {
namespace {

// Made before main(), so before accounting starts.
at::Tensor& older_than_main() {
  static at::Tensor tensor = torch::ones({1000}, torch::kByte);
  return tensor;
}
[[maybe_unused]] const bool made = older_than_main().defined();

class Adoption : public testing::Test {
 protected:
  void SetUp() override {
    start_accounting();
    ledger_.reset_peak();
    ledger_.reset_if_alone();
    base_ = ledger_.current();
  }
  void adopt(const at::Tensor& tensor) { ledger_.adopt(*tensor.storage().unsafeGetStorageImpl()); }
  /// As PyTorch's own allocator makes it.
  static at::Tensor older(int64_t bytes) {
    return at::empty({0}, torch::kByte)
        .set_(c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::GetDefaultCPUAllocator(), true), 0, {bytes},
              {1});
  }

  Ledger& ledger_ = Ledger::of(c10::kCPU);
  int64_t base_ = 0;
};

TEST_F(Adoption, ATensorFromBeforeTheStartCountsUntilItIsFreed) {
  at::Tensor& tensor = older_than_main();
  EXPECT_EQ(ledger_.current(), base_);
  EXPECT_EQ(ledger_.adopt(*tensor.storage().unsafeGetStorageImpl()), 1000);
  EXPECT_EQ(ledger_.adopt(*tensor.storage().unsafeGetStorageImpl()), 0);
  adopt(tensor.slice(0, 10, 20));
  EXPECT_EQ(ledger_.current(), base_ + 1000);
  EXPECT_EQ(ledger_.peak(), base_ + 1000);
  EXPECT_EQ(ledger_.plain_current(), base_ + 1000);
  EXPECT_TRUE(tensor.eq(1).all().item<bool>());
  tensor = at::Tensor();
  EXPECT_EQ(ledger_.current(), base_);
  EXPECT_EQ(ledger_.plain_current(), base_);
}

TEST_F(Adoption, OurOwnAreCountedOnce) {
  auto tensor = torch::empty({1000}, torch::kByte);
  adopt(tensor);
  EXPECT_EQ(ledger_.current(), base_ + 1000);
}

TEST_F(Adoption, AnOlderTensorThatGrowsIsCountedWithItsNewSize) {
  auto tensor = older(1000);
  adopt(tensor);
  tensor.resize_({3000});
  EXPECT_EQ(ledger_.current(), base_ + 3000);
  tensor.reset();
  EXPECT_EQ(ledger_.current(), base_);
}

TEST_F(Adoption, EmptyOnesCountNothing) {
  auto tensor = older(0);
  adopt(tensor);
  EXPECT_EQ(ledger_.current(), base_);
  tensor.resize_({700});
  EXPECT_EQ(ledger_.current(), base_ + 700);
}

TEST_F(Adoption, AForeignStorageCountsWhileItLives) {
  std::array<float, 64> values{};
  bool deleted = false;
  auto tensor = torch::from_blob(values.data(), {64}, [&](void*) { deleted = true; });
  auto undeleted = torch::from_blob(values.data(), {8});
  adopt(tensor);
  adopt(tensor);
  adopt(undeleted);
  EXPECT_EQ(ledger_.current(), base_ + 256) << "the same memory";
  undeleted.reset();
  EXPECT_EQ(ledger_.current(), base_ + 256);
  auto larger = torch::from_blob(values.data(), {64}, torch::kByte);
  adopt(larger);
  tensor.reset();
  EXPECT_TRUE(deleted);
  EXPECT_EQ(ledger_.current(), base_ + 256) << "until all are gone";
  larger.reset();
  EXPECT_EQ(ledger_.current(), base_);
  EXPECT_EQ(ledger_.plain_current(), base_);
}

TEST_F(Adoption, AForeignStorageThatIsGoneMakesRoom) {
  std::vector<char> values(1000);
  auto tensor = torch::from_blob(values.data(), {1000}, torch::kByte);
  adopt(tensor);
  FakeReclaimer reclaimer;
  auto enforcement = ledger_.enforce(base_ + 1500, reclaimer);
  tensor.reset();
  EXPECT_NO_THROW(torch::empty({1200}, torch::kByte));
  EXPECT_EQ(reclaimer.calls, 0);
}

TEST_F(Adoption, CopyOnWriteClonesAndBlobsOverOurMemoryAreNotCountedTwice) {
  auto tensor = torch::zeros({1000}, torch::kByte);
  const int64_t alive = ledger_.current();
  auto clone = at::_lazy_clone(tensor);
  adopt(tensor);
  adopt(clone);
  EXPECT_EQ(ledger_.current(), alive);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // the arena is not used there
  auto block = torch::zeros({1 << 20}, torch::kByte);
  auto blob = torch::from_blob(block.data_ptr(), {1 << 20}, torch::kByte);
  adopt(blob);
  EXPECT_EQ(ledger_.current(), alive + (1 << 20));
#endif
}

TEST_F(Adoption, OtherDevicesAreLeftAlone) {
  std::array<char, 100> values{};
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 100, c10::DataPtr(values.data(), c10::Device(c10::kXPU, 0)), nullptr, false);
  EXPECT_EQ(ledger_.adopt(*storage), 0);
  adopt(torch::empty({1000}, torch::TensorOptions().device(torch::kMeta)));
  EXPECT_EQ(ledger_.current(), base_);
}

TEST_F(Adoption, AsksForRoomButCountsInAnyCase) {
  FakeReclaimer reclaimer;
  reclaimer.tensors.push_back(torch::empty({1000}, torch::kByte));
  auto enforcement = ledger_.enforce(base_ + 1500, reclaimer);
  auto first = older(1200);
  adopt(first);
  EXPECT_EQ(ledger_.current(), base_ + 1200);
  EXPECT_EQ(ledger_.peak(), base_ + 1200);
  auto second = older(800);
  EXPECT_NO_THROW(adopt(second));
  EXPECT_EQ(ledger_.current(), base_ + 2000);
  EXPECT_EQ(reclaimer.refusals, 0);
}

TEST_F(Adoption, ThreadsThatMeetTheSameStoragesCountThemOnce) {
  std::vector<at::Tensor> tensors;
  std::vector<std::array<char, 100>> values(500);
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back(i % 2 == 0 ? older(100) : torch::from_blob(values[i].data(), {100}, torch::kByte));
  }
  const int64_t before = ledger_.current();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const auto& tensor : tensors) adopt(tensor);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ledger_.current(), before + 500 * 100);
  tensors.clear();
  EXPECT_EQ(ledger_.current(), base_);
}

}  // namespace
}  // namespace remat::memory
