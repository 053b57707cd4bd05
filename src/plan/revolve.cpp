// The planner `revolve`, after Griewank and Walther 2000, "Algorithm 799: Revolve".
#include "plan/revolve.h"

#include <algorithm>
#include <vector>

#include "plan/candidates.h"
#include "plan/planners.h"

namespace remat::planners {
namespace {

constexpr int64_t kMostBlocks = 512;

/// The next number of blocks to try: larger by one part in `share`.
int64_t beyond(int64_t number, int64_t share) { return number + std::max<int64_t>(1, number / share); }

}  // namespace

int64_t revolve_advance(int64_t length, int64_t slots) {
  // With s slots and at most r runs of each step, binomial(s + r, s) steps can be reversed. `within` is that number for
  // the fewest runs with which it is at least `length`. From it follow those for one run less, one slot less, and both.
  int64_t runs = 0, within = 1;
  while (within < length) {
    ++runs;
    within = within * (slots + runs) / runs;
  }
  const int64_t fewer_runs = within * runs / (slots + runs);
  const int64_t fewer_slots = within - fewer_runs;
  const int64_t fewer_of_both = fewer_slots * runs / (slots - 1 + runs);
  // The steps before the next checkpoint are reversed with all slots, those after it with one slot less. All numbers of
  // steps between two limits give the same total of runs; this is the smaller limit.
  return std::min(fewer_runs, length - fewer_of_both);
}

ChainSchedule revolve_schedule(int32_t blocks, int64_t slots) {
  struct Part {
    int32_t begin, end;
    int64_t slots;
  };
  ChainSchedule schedule(blocks);
  std::vector<Part> parts;
  if (blocks > 0) parts.push_back({0, blocks, slots});
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (part.end - part.begin == 1) {
      schedule.inside[part.begin] = schedule.runs[part.begin]++;
      continue;
    }
    const auto next = static_cast<int32_t>(part.begin + revolve_advance(part.end - part.begin, part.slots));
    if (part.slots > 1) schedule.state[next - 1] = std::min(schedule.state[next - 1], schedule.runs[next - 1]);
    for (int32_t b = part.begin; b < next; ++b) ++schedule.runs[b];
    parts.push_back({part.begin, next, part.slots});
    parts.push_back({next, part.end, std::max<int64_t>(1, part.slots - 1)});
  }
  return schedule;
}

Actions revolve(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  constexpr int64_t kMoreBlocks = 16;
  Candidates candidates(graph, budget_bytes, options);
  const Cuts cuts(graph);
  const int64_t most = std::min<int64_t>(kMostBlocks, static_cast<int64_t>(graph.operators.size()));
  for (int64_t blocks = 1; blocks <= most; blocks = beyond(blocks, kMoreBlocks)) {
    const Chain chain(graph, cuts.divide(blocks, Cuts::Measure::kSeconds));
    // More slots take more memory and less time, so the largest number that fits is found by bisection.
    int64_t fits = 0, too_many = chain.blocks() + 1;
    while (too_many - fits > 1 && !candidates.exhausted()) {
      const int64_t slots = fits + (too_many - fits) / 2;
      const bool fit = candidates.offer(actions_of(graph, chain, revolve_schedule(chain.blocks(), slots)));
      (fit ? fits : too_many) = slots;
    }
  }
  return candidates.best();
}

}  // namespace remat::planners
