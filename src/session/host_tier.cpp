#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <vector>

#include <remat/error.h>

#include "device/device.h"
#include "session/measured_copies.h"
#include "session/move_tier.h"
#include "tiers/host_target.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

/// Of all the copies together, out and back.
struct Seconds {
  double out = 0, in = 0;
};

Seconds there_and_back(tiers::MoveTarget& target, c10::Device device, const MeasuredCopies& copies) {
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

Seconds least_of_rounds(tiers::MoveTarget& target, c10::Device device, const MeasuredCopies& copies) {
  Seconds least = there_and_back(target, device, copies);  // which pins memory
  for (int round = 0; round < kMeasuredRounds; ++round) {
    const Seconds again = there_and_back(target, device, copies);
    least = {std::min(least.out, again.out), std::min(least.in, again.in)};
  }
  return least;
}

}  // namespace

MoveTier host_tier(c10::Device device, int64_t bytes) {
  const auto target = std::make_shared<tiers::HostTarget>(device, bytes);
  const auto room = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));  // as pinned memory is taken
  const MeasuredCopies large = kLargeCopies.within(room), small = kSmallCopies.within(room);
  const Seconds of_large = least_of_rounds(*target, device, large), of_small = least_of_rounds(*target, device, small);
  const FormCosts costs{.out = {.compute = 0, .copy = of_large.out / large.all_bytes()},
                        .in = {.compute = 0, .copy = of_large.in / large.all_bytes()}};
  return {.target = target,
          .tier = {.costs = costs,
                   .copy_seconds = seconds_of_copy(small, of_small.out + of_small.in, costs.out.copy + costs.in.copy),
                   .bytes = bytes}};
}

}  // namespace remat
