#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <remat/error.h>

#include "device/device.h"
#include "session/move_tier.h"
#include "tiers/host_target.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

struct Copies {
  int64_t count = 0;
  int64_t bytes = 0;  ///< of each
};
constexpr Copies kLarge{8, int64_t{4} << 20}, kSmall{64, int64_t{64} << 10};
constexpr int kRounds = 3;

/// Of all the copies together, out and back.
struct Seconds {
  double out = 0, in = 0;
};

Seconds there_and_back(tiers::MoveTarget& target, c10::Device device, Copies copies) {
  const auto& kind = device::kind_of(device);
  const auto memory = target.allocate(copies.bytes);
  std::vector<std::shared_ptr<tiers::MovedContents>> moved;
  const auto timed = [&](const auto& run) {
    kind.synchronize(device);
    const auto begin = std::chrono::steady_clock::now();
    run();
    kind.synchronize(device);
    return seconds_since(begin);
  };
  Seconds seconds;
  seconds.out = timed([&] {
    for (int64_t i = 0; i < copies.count; ++i) moved.push_back(target.write(memory, copies.bytes));
  });
  for (const auto& each : moved) {
    if (!each->wait_written()) throw Error("[session] host memory cannot be used: " + each->error() + "; name less");
  }
  seconds.in = timed([&] {
    for (const auto& each : moved) each->begin_read(memory);
  });
  for (const auto& each : moved) each->wait_read();
  moved.clear();
  kind.synchronize(device);
  return seconds;
}

Seconds least_of_rounds(tiers::MoveTarget& target, c10::Device device, Copies copies) {
  Seconds least = there_and_back(target, device, copies);
  for (int round = 0; round < kRounds; ++round) {  // the first pins memory
    const Seconds again = there_and_back(target, device, copies);
    least = {std::min(least.out, again.out), std::min(least.in, again.in)};
  }
  return least;
}

}  // namespace

MoveTier host_tier(c10::Device device, int64_t bytes) {
  const auto within = [bytes](Copies copies) {
    copies.bytes = std::min(copies.bytes, bytes);
    copies.count = std::clamp<int64_t>(bytes / copies.bytes, 1, copies.count);
    return copies;
  };
  const auto target = std::make_shared<tiers::HostTarget>(device, bytes);
  const Copies large = within(kLarge), small = within(kSmall);
  const Seconds of_large = least_of_rounds(*target, device, large), of_small = least_of_rounds(*target, device, small);
  const auto large_bytes = static_cast<double>(large.count * large.bytes);
  const FormCosts costs{.out = {.compute = 0, .copy = of_large.out / large_bytes},
                        .in = {.compute = 0, .copy = of_large.in / large_bytes}};
  const auto small_bytes = static_cast<double>(small.count * small.bytes);
  const double beside = std::max(0.0, of_small.out + of_small.in - small_bytes * (costs.out.copy + costs.in.copy));
  return {.target = target,
          .tier = {.costs = costs, .copy_seconds = beside / static_cast<double>(2 * small.count), .bytes = bytes}};
}

}  // namespace remat
