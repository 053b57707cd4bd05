#include "plan/rotor_blocks.h"

#include <algorithm>
#include <cmath>

namespace remat::planners {
namespace {

/// The most bytes of plain's memory above the baseline, without droppable values, by block.
struct OtherBytes {
  std::vector<int64_t> dropped;  ///< forward, where droppable values are dropped when they become idle
  std::vector<int64_t> held;     ///< forward and backward, where they are counted elsewhere from their producer on
};

OtherBytes other_bytes(const Graph& graph, const Chain& chain) {
  enum class Where : uint8_t { kNowhere, kMade, kIdle };
  std::vector<Where> where(graph.values.size(), Where::kNowhere);
  OtherBytes other{std::vector<int64_t>(chain.seconds.size(), 0), std::vector<int64_t>(chain.seconds.size(), 0)};
  int64_t level = 0;  // without idle values
  int64_t made = 0;   // bytes of droppable values that are not idle yet
  int32_t block = 0;
  bool forward = true;
  for (const GraphEvent& event : graph.events) {
    const bool of_value = event.kind != GraphEvent::Kind::kOperator && event.index >= 0;
    const GraphValue value = of_value ? graph.values[event.index] : GraphValue();
    switch (event.kind) {
      case GraphEvent::Kind::kOperator:
        block = chain.block_of[event.index];
        for (const int32_t v : graph.operators[event.index].results) {
          if (!graph.values[v].droppable) continue;
          where[v] = Where::kMade;
          made += graph.values[v].bytes;
        }
        break;
      case GraphEvent::Kind::kIdle:
        if (!value.returns() || where[event.index] == Where::kIdle) break;
        level -= value.bytes;
        if (value.droppable) made -= value.bytes;
        where[event.index] = Where::kIdle;
        break;
      case GraphEvent::Kind::kUse:
        forward = false;
        if (value.returns()) block = chain.block_of[value.producer];
        if (value.dropped && where[event.index] == Where::kIdle) {
          level += value.bytes;
          where[event.index] = Where::kNowhere;
        }
        break;
      case GraphEvent::Kind::kFree:
        if (where[event.index] != Where::kIdle) level -= value.bytes;
        if (where[event.index] == Where::kMade) made -= value.bytes;
        where[event.index] = Where::kNowhere;
        break;
      case GraphEvent::Kind::kOther:
        break;
    }
    if (forward) other.dropped[block] = std::max(other.dropped[block], level + event.step_rise());
    other.held[block] = std::max(other.held[block], level + event.step_rise() - made);
    level += event.delta;
  }
  return other;
}

}  // namespace

RotorBlocks::RotorBlocks(const Graph& graph, const Cuts& cuts, const Chain& chain, int32_t slots)
    : seconds(chain.seconds), tail_seconds(chain.tail_seconds) {
  const size_t count = seconds.size();
  if (count == 0) return;
  const int64_t peak = kept_peak_bytes(graph);
  const double slot = std::max(1.0, static_cast<double>(peak - graph.baseline_bytes) / slots);
  // Rounded to the nearest slot, since rounded up, many small blocks would need too many slots. Bytes above all slots
  // do not fit, however many they are (a graph's values may be larger than its peak).
  const auto in_slots = [&](int64_t bytes) {
    return static_cast<int32_t>(std::lround(std::clamp(static_cast<double>(bytes) / slot, 0.0, slots + 1.0)));
  };
  std::vector<int64_t> made(count, 0), stay(count, 0), crossing(count * count, 0);
  for (const Chain::Value& value : chain.values) {
    made[value.block] += value.bytes;
    if (value.end == value.block) stay[value.block] += value.bytes;
    for (int32_t b = value.block; b < value.end; ++b) crossing[value.block * count + b + 1] += value.bytes;
  }
  // From the values of each block to those of it and all later ones.
  for (size_t first = count - 1; first-- > 0;) {
    for (size_t next = 0; next < count; ++next) crossing[first * count + next] += crossing[(first + 1) * count + next];
  }
  for (const int64_t bytes : crossing) states_.push_back(in_slots(bytes));
  const OtherBytes others = other_bytes(graph, chain);
  for (size_t b = 0; b < count; ++b) {
    lost_seconds.push_back(cuts.lost_seconds(chain.cuts[b]));
    inside.push_back(in_slots(made[b]));
    tail_inside.push_back(in_slots(stay[b]));
    forward_other.push_back(in_slots(others.dropped[b]));
    other.push_back(in_slots(others.held[b]));
  }
}

}  // namespace remat::planners
