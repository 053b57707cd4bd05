// Random programs on the simulated device: the same bits with and without remat, peaks under the budget, to the byte.
// tests/fuzz/run_programs.h says how to run more of them, or one.
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "device/simulated_device.h"
#include "device/stream.h"
#include "fuzz/run_programs.h"

namespace remat::fuzz {
namespace {

/// Shards, with kernels that are waited for and with ones that run later. No DeviceTest: what some programs do in place
/// makes cycles, in plain PyTorch too, so that the device is not empty when the next test begins.
class DeviceFuzz : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void SetUp() override {
    simulated::register_devices();
    was_synchronous_ = simulated::synchronous();
    simulated::set_synchronous(std::get<1>(GetParam()));
  }
  void TearDown() override { simulated::set_synchronous(was_synchronous_); }

  static void run(const Check& check, int64_t programs, int64_t scale, Kind kind = Kind::kOrdinary) {
    run_programs(check, std::get<0>(GetParam()), programs, scale, kind, simulated::device());
  }

 private:
  bool was_synchronous_ = false;
};

TEST_P(DeviceFuzz, SameBitsWhateverIsDropped) { run(check_exact, 120, 5); }
TEST_P(DeviceFuzz, SameBitsFollowingAPlan) { run(check_plans, 32, 24); }
TEST_P(DeviceFuzz, SameBitsWhereStepsChange) { run(check_changing_steps, 32, 24); }
TEST_P(DeviceFuzz, SameBitsWithinEveryBudget) { run(check_budgets, 32, 24); }

INSTANTIATE_TEST_SUITE_P(Shards, DeviceFuzz, testing::Combine(testing::Range(0, kShards), testing::Bool()),
                         [](const auto& at) {
                           return std::to_string(std::get<0>(at.param)) +
                                  (std::get<1>(at.param) ? "_synchronous" : "_asynchronous");
                         });

}  // namespace
}  // namespace remat::fuzz
