// tests/device/device_fixture.h -- what tests on the simulated devices begin with, and leave behind.
#pragma once

#include <gtest/gtest.h>
#include <remat/memory.h>
#include <torch/torch.h>

#include "device/caching_allocator.h"
#include "device/device_memory.h"
#include "device/generator.h"
#include "device/simulated_device.h"
#include "device/stream.h"
#include "support/silence.h"

namespace remat::simulated {

/// Devices that are empty, asynchronous and without delays.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    register_devices();
    was_synchronous_ = synchronous();
    for (int index = 0; index < kDevices; ++index) synchronize_device(index);
    caching_allocator().emptyCache({0, 0});
    for (c10::DeviceIndex index = 0; index < kDevices; ++index) {
      caching_allocator().resetAccumulatedStats(index);
      caching_allocator().resetPeakStats(index);
      ASSERT_EQ(caching_allocator().getDeviceStats(index).allocated_bytes[0].current, 0) << "left by another test";
    }
  }

  void TearDown() override {
    set_synchronous(was_synchronous_);
    set_delay(0);
    set_draw_on_cpu(false);
    set_current_device(0);
    for (int index = 0; index < kDevices; ++index) {
      exchange_current_stream(default_stream(index));
      EXPECT_NO_THROW(synchronize_device(index));
      DeviceMemory::of(index).set_capacity(size_t{256} << 20);
    }
  }

 private:
  bool was_synchronous_ = false;
};

/// The same, counted, for sessions on a device.
class DeviceSessionTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    set_synchronous(false);
    memory::start_accounting(device());
    before_ = c10::WarningUtils::get_warning_handler();
    c10::WarningUtils::set_warning_handler(&silence_);  // a session says that devices are new to it
  }
  void TearDown() override {
    c10::WarningUtils::set_warning_handler(before_);
    DeviceTest::TearDown();
  }

 private:
  test::Silence silence_;
  c10::WarningHandler* before_ = nullptr;
};

}  // namespace remat::simulated
