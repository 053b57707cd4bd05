#include "plan/rotor_blocks.h"

#include <algorithm>
#include <cmath>

namespace remat::planners {
namespace {

/// The most that plain's memory has besides droppable values that are put away, above the baseline.
struct OtherBytes {
  std::vector<int64_t> forward, backward;  ///< by block
};

OtherBytes other_bytes(const Graph& graph, const std::vector<int32_t>& block_of, size_t blocks) {
  OtherBytes other{std::vector<int64_t>(blocks, 0), std::vector<int64_t>(blocks, 0)};
  std::vector<bool> put_away(graph.values.size(), false);
  int64_t level = 0;
  int32_t block = 0;
  bool forward = true;
  for (const GraphEvent& event : graph.events) {
    const bool of_value = event.kind != GraphEvent::Kind::kOperator && event.index >= 0;
    const bool droppable = of_value && graph.values[event.index].droppable;
    if (event.kind == GraphEvent::Kind::kUse) forward = false;
    if (event.kind == GraphEvent::Kind::kOperator) block = block_of[event.index];
    if (event.kind == GraphEvent::Kind::kUse && droppable) block = block_of[graph.values[event.index].producer];
    if (event.kind == GraphEvent::Kind::kIdle && droppable) {
      put_away[event.index] = true;
      level -= graph.values[event.index].bytes;
    }
    if (event.kind == GraphEvent::Kind::kFree) {
      if (!put_away[event.index]) level -= graph.values[event.index].bytes;
      put_away[event.index] = false;
    }
    std::vector<int64_t>& most = forward ? other.forward : other.backward;
    most[block] = std::max(most[block], level + event.rise);
    level += event.delta;
  }
  return other;
}

}  // namespace

RotorBlocks::RotorBlocks(const Graph& graph, const Cuts& cuts, const Chain& chain, int32_t slots)
    : seconds(chain.seconds), tail_seconds(chain.tail_seconds) {
  const size_t count = seconds.size();
  if (count == 0) return;
  const int64_t peak = Simulator(graph).run(Fates(graph.values.size(), Fate::kKeep)).peak_bytes;
  const double slot = std::max(1.0, static_cast<double>(peak - graph.baseline_bytes) / slots);
  // To the nearest slot: rounded up, many small blocks would take what they do not need.
  const auto in_slots = [&](int64_t bytes) {
    return static_cast<int32_t>(std::lround(std::max(0.0, static_cast<double>(bytes)) / slot));
  };
  std::vector<int64_t> made(count, 0), crossing(count * count, 0);
  for (const Chain::Value& value : chain.values) {
    made[value.block] += value.bytes;
    for (int32_t b = value.block; b < value.end; ++b) crossing[value.block * count + b + 1] += value.bytes;
  }
  // From what each block made to what it and all later ones made.
  for (size_t first = count - 1; first-- > 0;) {
    for (size_t next = 0; next < count; ++next) crossing[first * count + next] += crossing[(first + 1) * count + next];
  }
  for (const int64_t bytes : crossing) states_.push_back(in_slots(bytes));
  const OtherBytes others = other_bytes(graph, chain.block_of, count);
  for (size_t b = 0; b < count; ++b) {
    lost_seconds.push_back(cuts.lost_seconds(chain.cuts[b]));
    inside.push_back(in_slots(made[b]));
    forward_other.push_back(in_slots(others.forward[b]));
    other.push_back(in_slots(std::max(others.forward[b], others.backward[b])));
  }
}

}  // namespace remat::planners
