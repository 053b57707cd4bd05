// The planner `rotor`, after Herrmann, Beaumont et al. 2019, "Optimal checkpointing for heterogeneous chains: how to
// train deep neural networks with limited memory": a dynamic programme over a chain of blocks.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "plan/candidates.h"
#include "plan/chain.h"
#include "plan/planners.h"
#include "plan/rotor_blocks.h"

namespace remat::planners {
namespace {

/// Planning time grows with the cube of the number of blocks, memory with its square. More blocks give more choices;
/// with fewer, less is lost by rounding to slots.
constexpr std::array<int64_t, 3> kBlocks = {96, 48, 24};
constexpr int32_t kSlots = 256;

/// The dynamic programme: the least seconds to go through blocks `first` to `last` and back with a number of memory
/// slots, where the state before `first` is held.
class Programme {
 public:
  explicit Programme(const RotorBlocks& blocks) : blocks_(blocks), count_(static_cast<size_t>(blocks.count())) {
    seconds_.resize(count_ * count_ * kWidth, kNoWay);
    choices_.resize(seconds_.size(), kNone);
    for (size_t length = 1; length <= count_; ++length) {
      for (size_t first = 0; first + length <= count_; ++first) solve(first, first + length - 1);
    }
  }

  /// The least seconds for the whole chain with `slots` slots; infinite if they do not suffice.
  float seconds(int32_t slots) const { return count_ == 0 ? kNoWay : seconds_[at(0, count_ - 1, slots)]; }
  /// The schedule that takes so many seconds.
  ChainSchedule schedule(int32_t slots) const;

 private:
  static constexpr size_t kWidth = kSlots + 1;
  static constexpr float kNoWay = std::numeric_limits<float>::infinity();
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kHold = 0;  ///< hold all values of the first block; otherwise: blocks to the checkpoint

  size_t at(size_t first, size_t last, int32_t slots) const {
    return (first * count_ + last) * kWidth + static_cast<size_t>(slots);
  }

  void solve(size_t first, size_t last) {
    float* const best = &seconds_[at(first, last, 0)];
    int32_t* const choices = &choices_[at(first, last, 0)];
    // All values of the first block are held from now on. Those that cross the end of the last block are held anyway,
    // or have been used and freed.
    const int32_t made = first == last ? blocks_.tail_inside[first] : blocks_.inside[first];
    const auto own = static_cast<float>(first == last ? blocks_.tail_seconds[first] : blocks_.seconds[first]);
    for (int32_t m = made + blocks_.other[first]; m <= kSlots; ++m) {
      best[m] = first == last ? own : own + seconds_[at(first + 1, last, m - made)];
      if (std::isfinite(best[m])) choices[m] = kHold;
    }
    // Or a checkpoint is taken after some blocks, and these blocks run again when the backward pass has reached it.
    double forward = 0;
    int32_t least = 0;
    for (size_t next = first + 1; next <= last; ++next) {
      forward += blocks_.seconds[next - 1];
      least = std::max(least, blocks_.forward_other[next - 1]);
      const int32_t held = blocks_.state(first, next);
      const auto fixed = static_cast<float>(forward + blocks_.lost_seconds[next]);
      const auto choice = static_cast<int32_t>(next - first);
      const int32_t from = std::max(least, held);
      if (from > kSlots) continue;
      const float* const after = &seconds_[at(next, last, from - held)];
      const float* const before = &seconds_[at(first, next - 1, from)];
      // Without branches, so that the compiler vectorizes the loop: planning spends most of its time here.
      for (int32_t m = 0; m <= kSlots - from; ++m) {
        const float seconds = fixed + after[m] + before[m];
        const bool better = seconds < best[from + m];
        best[from + m] = better ? seconds : best[from + m];
        choices[from + m] = better ? choice : choices[from + m];
      }
    }
  }

  const RotorBlocks& blocks_;
  const size_t count_;
  std::vector<float> seconds_;    ///< by first block, last block and slots
  std::vector<int32_t> choices_;  ///< likewise
};

ChainSchedule Programme::schedule(int32_t slots) const {
  struct Part {
    size_t first, last;
    int32_t slots;
  };
  ChainSchedule schedule(static_cast<int32_t>(count_));
  std::vector<Part> parts = {{0, count_ - 1, slots}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    const int32_t choice = choices_[at(part.first, part.last, part.slots)];
    if (choice == kHold) {
      schedule.inside[part.first] = schedule.runs[part.first]++;
      if (part.first == part.last) continue;
      parts.push_back({part.first + 1, part.last, part.slots - blocks_.inside[part.first]});
      continue;
    }
    const size_t next = part.first + static_cast<size_t>(choice);
    schedule.state[next - 1] = std::min(schedule.state[next - 1], schedule.runs[next - 1]);
    for (size_t b = part.first; b < next; ++b) ++schedule.runs[b];
    parts.push_back({part.first, next - 1, part.slots});
    parts.push_back({next, part.last, part.slots - blocks_.state(part.first, next)});
  }
  return schedule;
}

/// The programme's memory model is rough, so the schedules for all numbers of slots are simulated.
void offer_all(Candidates& candidates, const Graph& graph, const Chain& chain, const Programme& programme) {
  for (int32_t slots = 0; slots <= kSlots && !candidates.exhausted(); ++slots) {
    if (!std::isfinite(programme.seconds(slots))) continue;
    if (slots > 0 && programme.seconds(slots) == programme.seconds(slots - 1)) continue;
    candidates.offer(actions_of(graph, chain, programme.schedule(slots)));
  }
}

}  // namespace

Actions rotor(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  const Cuts cuts(graph);
  const std::vector<bool> packed = options.pack ? cheaper_packed(graph) : std::vector<bool>();
  std::set<std::vector<int32_t>> tried;
  for (const int64_t count : kBlocks) {
    for (const auto measure : {Cuts::Measure::kBytes, Cuts::Measure::kSeconds}) {
      const auto [places, first] = tried.insert(cuts.divide(count, measure));
      if (!first || candidates.exhausted()) continue;
      const Chain chain(graph, *places, packed);
      const RotorBlocks blocks(graph, cuts, chain, kSlots);
      offer_all(candidates, graph, chain, Programme(blocks));
    }
  }
  return candidates.best();
}

}  // namespace remat::planners
