// The simulated devices' streams: work is done later, in order, and what breaks the order shows.
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "device/computing_kernels.h"
#include "device/device_fixture.h"

namespace remat::simulated {
namespace {

/// Keeps a stream from going on, until the end of its life.
class Hold {
 public:
  explicit Hold(const c10::Stream& stream) {
    WorkQueue::of(stream).submit(
        [future = std::make_shared<std::future<void>>(open_.get_future())] { future->wait(); });
  }
  ~Hold() { open_.set_value(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::promise<void> open_;
};

class DeviceStream : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    set_synchronous(false);  // held streams would be waited for
  }
};

TEST_F(DeviceStream, IsThatOfAnAccelerator) {
  ASSERT_EQ(at::getAccelerator(), std::optional(c10::kPrivateUse1));
  EXPECT_EQ(at::accelerator::deviceCount(), kDevices);
  EXPECT_EQ(c10::Device("simulated:1"), device(1));
  at::accelerator::setDeviceIndex(1);
  EXPECT_EQ(torch::empty({1}, torch::device(torch::kPrivateUse1)).device(), device(1));
  EXPECT_EQ(at::accelerator::getCurrentStream(1), default_stream(1));
  at::accelerator::synchronizeDevice(1);
}

TEST_F(DeviceStream, RunsKernelsLater) {
  const auto values = torch::ones({8}, device());
  torch::Tensor sum;
  {
    const Hold hold(default_stream(0));
    sum = values.add(1).sum();
    EXPECT_FALSE(c10::Stream(default_stream(0)).query());
  }
  EXPECT_EQ(sum.item<float>(), 16.0F);
}

TEST_F(DeviceStream, QueuesCallsWhoseResultsCanBeForetold) {
  const auto input = torch::rand({2, 3, 8, 8}, device());
  const auto weight = torch::rand({4, 3, 3, 3}, device());
  const ComputedCalls before = computed_calls();
  const auto result = torch::conv2d(input, weight).relu_().mean({2, 3}).softmax(1);
  EXPECT_EQ(computed_calls().waited, before.waited);
  EXPECT_GE(computed_calls().queued, before.queued + 4);
  EXPECT_EQ(result.nonzero().size(0), 8);
  EXPECT_GT(computed_calls().waited, before.waited);
}

TEST_F(DeviceStream, EventsOrderStreams) {
  const c10::Stream side = pool_stream(0);
  auto values = torch::zeros({8}, device());
  torch::Tensor read;
  {
    const Hold hold(default_stream(0));
    values.add_(1);
    c10::Event written(c10::kPrivateUse1);
    written.record(default_stream(0));
    EXPECT_FALSE(written.query());
    written.block(side);
    const c10::StreamGuard guard(side);
    read = values.mul(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as long as the kernel would take
    EXPECT_FALSE(side.query());
  }
  side.synchronize();
  EXPECT_TRUE(torch::equal(read.cpu(), torch::full({8}, 2.0F)));
}

TEST_F(DeviceStream, WithoutAnEventAnotherStreamReadsTooEarly) {
  const c10::Stream side = pool_stream(0);
  auto values = torch::zeros({8}, device());
  synchronize_device(0);
  torch::Tensor read;
  {
    const Hold hold(default_stream(0));
    values.add_(1);
    const c10::StreamGuard guard(side);
    read = values.mul(2);
    side.synchronize();
  }
  EXPECT_TRUE(torch::equal(read.cpu(), torch::zeros({8})));
}

TEST_F(DeviceStream, EventsMeasureTime) {
  c10::Event begin(c10::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(c10::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(default_stream(0));
  WorkQueue::of(default_stream(0)).submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  end.record(default_stream(0));
  EXPECT_THROW(begin.elapsedTime(end), c10::Error);
  end.synchronize();
  EXPECT_GE(begin.elapsedTime(end), 5.0);
}

/// What a side stream reads of a tensor that is freed while the stream is held, and whose memory is asked for again.
torch::Tensor read_freed_tensor(bool tell_allocator) {
  const c10::Stream side = pool_stream(0);
  auto values = torch::ones({1024}, device());
  synchronize_device(0);
  torch::Tensor read;
  {
    const Hold hold(side);
    {
      const c10::StreamGuard guard(side);
      read = values.mul(2);
    }
    if (tell_allocator) values.record_stream(side);
    values.reset();
    values = torch::full({1024}, 7.0F, device());
    default_stream(0).synchronize();
  }
  side.synchronize();
  return read.cpu();
}

TEST_F(DeviceStream, MemoryThatIsReusedTooEarlyShowsAsWrongValues) {
  EXPECT_TRUE(torch::equal(read_freed_tensor(false), torch::full({1024}, 14.0F)));
}

TEST_F(DeviceStream, MemoryOfARecordedStreamIsNotReusedTooEarly) {
  EXPECT_TRUE(torch::equal(read_freed_tensor(true), torch::full({1024}, 2.0F)));
  // Past the stream's mark it is.
  const auto active = caching_allocator().getDeviceStats(0).active_bytes[0].current;
  const auto next = torch::empty({1}, device());
  EXPECT_LE(caching_allocator().getDeviceStats(0).active_bytes[0].current, active + 512);
  EXPECT_EQ(caching_allocator().getDeviceStats(0).allocated_bytes[0].current, 512);
}

TEST_F(DeviceStream, BlocksServeTheirOwnStream) {
  constexpr int64_t kFloats = 1 << 20;  // 4 MiB, one block of a segment
  const c10::Stream side = pool_stream(0);
  const auto address_on = [](const c10::Stream& stream) {
    const c10::StreamGuard guard(stream);
    return torch::empty({kFloats}, device()).data_ptr();
  };
  void* of_side = address_on(side);
  void* of_default = address_on(default_stream(0));
  EXPECT_NE(of_side, of_default);
  EXPECT_EQ(address_on(side), of_side);
  EXPECT_EQ(address_on(default_stream(0)), of_default);
}

TEST_F(DeviceStream, CopiesBetweenDevicesWaitForBothStreams) {
  auto target = torch::zeros({8}, device(1));
  torch::Tensor source;
  {
    const Hold writer(default_stream(0));
    const Hold reader(default_stream(1));
    source = torch::ones({8}, device(0));
    target.add_(5);
    target.copy_(source);
    source.add_(1);
    target.mul_(3);
  }
  EXPECT_TRUE(torch::equal(target.cpu(), torch::full({8}, 3.0F)));
  EXPECT_TRUE(torch::equal(source.cpu(), torch::full({8}, 2.0F)));
}

TEST_F(DeviceStream, PinnedMemoryIsCopiedLater) {
  const auto pinned = torch::ones({8}).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(torch::ones({8}).is_pinned());
  torch::Tensor late;
  torch::Tensor early;
  auto back = torch::zeros({8}).pin_memory();
  {
    const Hold hold(default_stream(0));
    const auto pageable = torch::ones({8});
    late = pinned.to(device(), true);
    early = pageable.to(device(), true);
    back.copy_(late, true);
    pinned.fill_(2);
    pageable.fill_(2);
    EXPECT_EQ(back[0].item<float>(), 0.0F);
  }
  default_stream(0).synchronize();
  EXPECT_TRUE(torch::equal(late.cpu(), torch::full({8}, 2.0F)));
  EXPECT_TRUE(torch::equal(early.cpu(), torch::ones({8})));
  EXPECT_TRUE(torch::equal(back, torch::full({8}, 2.0F)));
}

TEST_F(DeviceStream, PinnedMemoryIsNotReusedTooEarly) {
  auto pinned = torch::ones({8}).pin_memory();
  const void* address = pinned.data_ptr();
  {
    const Hold hold(default_stream(0));
    const auto copy = pinned.to(device(), true);
    pinned.reset();
    pinned = torch::ones({8}).pin_memory();
    EXPECT_NE(pinned.data_ptr(), address);
  }
  default_stream(0).synchronize();
  EXPECT_EQ(torch::ones({8}).pin_memory().data_ptr(), address);
}

}  // namespace
}  // namespace remat::simulated
