// The simulated devices' memory: apart from the host's and from each other's, cached, fragmented, limited.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "device/device_fixture.h"
#include "device/device_memory.h"

namespace remat::simulated {
namespace {

class DeviceAllocation : public DeviceTest {};
using DeviceMemoryDeathTest = DeviceTest;  // googletest runs suites with this ending first, before there are threads

int64_t bytes(const c10::CachingAllocator::StatArray& counts) { return counts[0].current; }

c10::CachingDeviceAllocator::DeviceStats stats(int index = 0) {
  return c10::getDeviceAllocator(c10::kPrivateUse1)->getDeviceStats(static_cast<c10::DeviceIndex>(index));
}

torch::Tensor block(int64_t size, int index = 0) {
  return torch::empty({size}, torch::dtype(torch::kByte).device(device(index)));
}

constexpr int64_t kMiB = 1 << 20;

TEST_F(DeviceMemoryDeathTest, HostThatFollowsADevicePointerEnds) {
  const auto tensor = torch::ones({4}, device());
  synchronize_device(0);
  const float* address = tensor.const_data_ptr<float>();
  const auto follow = [address] {
    const volatile float read = *address;
    static_cast<void>(read);
    std::_Exit(0);
  };
  EXPECT_DEATH(follow(), "");
  EXPECT_EQ(*static_cast<const float*>(DeviceMemory::for_kernels(address)), 1.0F);
}

TEST_F(DeviceAllocation, DevicesHaveMemoryApart) {
  const auto first = torch::ones({256}, device(0));
  const auto second = torch::zeros({256}, device(1));
  EXPECT_EQ(DeviceMemory::device_of(first.data_ptr()), 0);
  EXPECT_EQ(DeviceMemory::device_of(second.data_ptr()), 1);
  EXPECT_EQ(bytes(stats(0).requested_bytes), 1024);
  EXPECT_EQ(bytes(stats(1).requested_bytes), 1024);
  EXPECT_THROW(first.add(second), c10::Error);
  EXPECT_THROW(first.add(torch::ones({256})), c10::Error);
  EXPECT_TRUE(torch::equal(first.to(device(1)).add(second).cpu(), torch::ones({256})));
}

TEST_F(DeviceAllocation, CountsWhatIsRequestedAllocatedAndReserved) {
  const auto small = block(1000);
  auto large = block(3 * kMiB);
  EXPECT_EQ(bytes(stats().requested_bytes), 1000 + 3 * kMiB);
  EXPECT_EQ(bytes(stats().allocated_bytes), 1024 + 3 * kMiB);
  EXPECT_EQ(bytes(stats().reserved_bytes), 22 * kMiB);
  EXPECT_EQ(stats().segment[0].current, 2);
  large.reset();
  EXPECT_EQ(bytes(stats().allocated_bytes), 1024);
  EXPECT_EQ(stats().allocated_bytes[0].peak, 1024 + 3 * kMiB);
  EXPECT_EQ(bytes(stats().reserved_bytes), 22 * kMiB);
  c10::getDeviceAllocator(c10::kPrivateUse1)->emptyCache();
  EXPECT_EQ(bytes(stats().reserved_bytes), 2 * kMiB);
  EXPECT_EQ(c10::getDeviceAllocator(c10::kPrivateUse1)->getMemoryInfo(0),
            (std::pair<size_t, size_t>(254 * kMiB, 256 * kMiB)));
}

TEST_F(DeviceAllocation, FreedBlocksServeAgainAndAreJoined) {
  auto first = block(kMiB / 2);
  auto second = block(kMiB / 2);
  void* address = first.data_ptr();
  first.reset();
  first = block(kMiB / 2);
  EXPECT_EQ(first.data_ptr(), address);
  first.reset();
  second.reset();
  const auto joined = block(kMiB);
  EXPECT_EQ(joined.data_ptr(), address);
  EXPECT_EQ(bytes(stats().reserved_bytes), 2 * kMiB);
}

TEST_F(DeviceAllocation, Fragments) {
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 40; ++i) tensors.push_back(block(2 * kMiB));
  EXPECT_EQ(bytes(stats().reserved_bytes), 80 * kMiB);
  for (size_t i = 0; i < tensors.size(); i += 2) tensors[i].reset();
  // 40 MiB are free, in pieces of 2 MiB, and none serves.
  EXPECT_EQ(bytes(stats().allocated_bytes), 40 * kMiB);
  EXPECT_EQ(bytes(stats().inactive_split_bytes), 40 * kMiB);
  const auto wide = block(3 * kMiB);
  EXPECT_EQ(bytes(stats().reserved_bytes), 100 * kMiB);
}

TEST_F(DeviceAllocation, RunsOutAfterTheCacheWasGivenBack) {
  DeviceMemory::of(0).set_capacity(64 * kMiB);
  auto cached = block(40 * kMiB);
  cached.reset();
  EXPECT_EQ(bytes(stats().reserved_bytes), 40 * kMiB);
  const int64_t retries = stats().num_alloc_retries;
  const auto other = block(50 * kMiB);  // fits where nothing is cached
  EXPECT_EQ(stats().num_alloc_retries, retries + 1);
  EXPECT_EQ(bytes(stats().reserved_bytes), 50 * kMiB);
  EXPECT_THROW(block(20 * kMiB), c10::OutOfMemoryError);
  EXPECT_EQ(stats().num_ooms, 1);
  EXPECT_NO_THROW(block(20 * kMiB, 1));
}

/// In front of the device's, as remat's is one day.
class AllocatorInFront final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    requests.push_back(size);
    return caching_allocator().allocate(size);
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    caching_allocator().copy_data(to, from, size);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool) override { caching_allocator().emptyCache(pool); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    ++recorded;
    caching_allocator().recordStream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return caching_allocator().getDeviceStats(index);
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { caching_allocator().resetAccumulatedStats(index); }
  void resetPeakStats(c10::DeviceIndex index) override { caching_allocator().resetPeakStats(index); }

  std::vector<size_t> requests;
  int recorded = 0;
};

TEST_F(DeviceAllocation, IsAskedOfTheAllocatorInFront) {
  static AllocatorInFront front;
  constexpr uint8_t kPriority = 128;  // that of remat's, which another test may have put there
  c10::Allocator* const before = c10::GetAllocator(c10::kPrivateUse1);
  c10::SetAllocator(c10::kPrivateUse1, &front, kPriority);
  auto tensor = torch::ones({4}, device());
  tensor.resize_({6});
  const auto sum = tensor.add(1);
  sum.record_stream(pool_stream(0));
  c10::SetAllocator(c10::kPrivateUse1, before, kPriority);
  EXPECT_EQ(front.requests, (std::vector<size_t>{16, 24, 24}));
  EXPECT_EQ(front.recorded, 1);
}

TEST_F(DeviceAllocation, BlocksAreCopied) {
  const auto tensor = torch::ones({4}, device());
  const c10::DataPtr copy = caching_allocator().clone(tensor.data_ptr(), 16);
  EXPECT_EQ(static_cast<const float*>(DeviceMemory::for_kernels(copy.get()))[3], 1.0F);
}

TEST_F(DeviceAllocation, IsNotAsItWasLeft) {
  const auto tensor = torch::empty({3}, device());
  EXPECT_TRUE(tensor.isnan().all().item<bool>());
}

TEST_F(DeviceAllocation, StoragesChangeTheirSize) {
  auto tensor = torch::arange(4, device()).to(torch::kFloat);
  tensor.resize_({2, 4});
  EXPECT_EQ(tensor.storage().nbytes(), 32);
  EXPECT_TRUE(torch::equal(tensor[0].cpu(), torch::arange(4).to(torch::kFloat)));
  const auto view = tensor[1];
  at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), 0);
  EXPECT_EQ(bytes(stats().allocated_bytes), 0);
  EXPECT_THROW(view.add(1), c10::Error);  // the storage was emptied
}

TEST_F(DeviceAllocation, KernelsThatFailSayItLater) {
  const auto weight = torch::ones({4, 2}, device());
  const auto index = torch::full({1}, 9, torch::dtype(torch::kLong).device(device()));
  const auto result = torch::embedding(weight, index);
  EXPECT_THROW(result.cpu(), c10::Error);
  EXPECT_NO_THROW(weight.cpu());
}

}  // namespace
}  // namespace remat::simulated
