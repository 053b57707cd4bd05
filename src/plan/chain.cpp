#include "plan/chain.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace remat::planners {
namespace {

/// The last operator that reads each value; its producer where none does.
std::vector<int32_t> last_readers(const Graph& graph) {
  std::vector<int32_t> last(graph.values.size());
  for (size_t v = 0; v < last.size(); ++v) last[v] = graph.values[v].producer;
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int32_t input : graph.operators[o].inputs) last[input] = static_cast<int32_t>(o);
  }
  return last;
}

}  // namespace

Cuts::Cuts(const Graph& graph)
    : kept_bytes_(graph.operators.size() + 2, 0),
      kept_seconds_(graph.operators.size() + 2, 0),
      lost_seconds_(graph.operators.size() + 2, 0),
      lost_(graph.operators.size() + 2, 0),
      seconds_(graph.operators.size() + 1, 0),
      bytes_(graph.operators.size() + 1, 0) {
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    seconds_[o + 1] = seconds_[o] + graph.operators[o].replay_seconds;
    bytes_[o + 1] = bytes_[o];
    for (const int32_t made : graph.operators[o].results) {
      if (graph.values[made].droppable) bytes_[o + 1] += static_cast<double>(graph.values[made].bytes);
    }
  }
  if (seconds_.back() > 0) bytes_per_second_ = bytes_.back() / seconds_.back();
  const std::vector<double> recompute = recompute_seconds(graph);
  const std::vector<bool> saved = saved_values(graph);
  const std::vector<int32_t> last = last_readers(graph);
  std::vector<bool> rooted(graph.values.size(), true);
  // First the changes at each place, then their sums.
  const auto add = [&](size_t v, auto& at, auto amount) {
    at[graph.values[v].producer + 1] += amount;
    at[last[v] + 1] -= amount;
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.producer < 0) continue;
    const std::vector<int32_t>& inputs = graph.operators[value.producer].inputs;
    rooted[v] = std::all_of(inputs.begin(), inputs.end(), [&](int32_t input) {
      return saved[input] ? !graph.values[input].droppable : rooted[input];
    });
    if (last[v] <= value.producer) continue;
    if (saved[v] && value.droppable) {
      add(v, kept_bytes_, static_cast<double>(value.bytes));
      add(v, kept_seconds_, recompute[v]);
    }
    if (!saved[v] && rooted[v]) add(v, lost_seconds_, recompute[v]);
    if (!saved[v] && !rooted[v]) add(v, lost_, 1);
  }
  for (size_t place = 1; place < lost_.size(); ++place) {
    kept_bytes_[place] += kept_bytes_[place - 1];
    kept_seconds_[place] += kept_seconds_[place - 1];
    lost_seconds_[place] += lost_seconds_[place - 1];
    lost_[place] += lost_[place - 1];
  }
}

std::vector<int32_t> Cuts::divide(int64_t blocks, Measure measure) const {
  const std::vector<double>& before = measure == Measure::kSeconds ? seconds_ : bytes_;
  const auto operators = static_cast<int32_t>(before.size()) - 1;
  std::vector<int32_t> cuts = {0};
  if (operators > 0 && blocks > std::count(lost_.begin() + 1, lost_.begin() + operators, 0)) {
    for (int32_t place = 1; place < operators; ++place) {
      if (lost_[place] == 0) cuts.push_back(place);
    }
    cuts.push_back(operators);
    return cuts;
  }
  const double share = before.back() / static_cast<double>(blocks);
  int32_t place = 1;
  for (int64_t b = 1; b < blocks; ++b) {
    const double target = share * static_cast<double>(b);
    while (place < operators && before[place] < target - share / 2) ++place;
    int32_t best = -1;
    const auto rank = [&](int32_t p) { return std::tuple(width(p), -kept_seconds_[p], std::abs(before[p] - target)); };
    for (; place < operators && before[place] < target + share / 2; ++place) {
      if (lost_[place] == 0 && (best < 0 || rank(place) < rank(best))) best = place;
    }
    if (best >= 0) cuts.push_back(best);
  }
  if (operators > 0) cuts.push_back(operators);
  return cuts;
}

Chain::Chain(const Graph& graph, std::vector<int32_t> places, const std::vector<bool>& packed)
    : cuts(std::move(places)), block_of(graph.operators.size(), 0) {
  for (size_t b = 0; b + 1 < cuts.size(); ++b) {
    for (int32_t o = cuts[b]; o < cuts[b + 1]; ++o) block_of[o] = static_cast<int32_t>(b);
  }
  const std::vector<int32_t> last = last_readers(graph);
  const std::vector<bool> saved = saved_values(graph);
  // The operators that a replay of their block runs: the producers of values to recompute, and the producers of inputs
  // that are not saved.
  std::vector<bool> runs(graph.operators.size(), false), runs_in_tail = runs;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.producer < 0 || (!packed.empty() && packed[v])) continue;
    const int32_t block = block_of[value.producer], end = block_of[last[v]];
    if (value.droppable) {
      values.push_back({static_cast<int32_t>(v), block, end, value.bytes});
      if (block == end) runs_in_tail[value.producer] = true;
    }
    if (value.droppable || (!saved[v] && block < end)) runs[value.producer] = true;
  }
  const auto sum_up = [&](std::vector<bool>& run, std::vector<double>& sums) {
    sums.assign(cuts.size() - 1, 0);
    for (auto o = static_cast<int32_t>(graph.operators.size()); o-- > 0;) {
      if (!run[o]) continue;
      sums[block_of[o]] += graph.operators[o].replay_seconds;
      for (const int32_t input : graph.operators[o].inputs) {
        const int32_t producer = graph.values[input].producer;
        if (producer >= 0 && !saved[input] && block_of[producer] == block_of[o]) run[producer] = true;
      }
    }
  };
  sum_up(runs, seconds);
  sum_up(runs_in_tail, tail_seconds);
}

namespace {

/// The first run of its block after which a value is held.
int32_t held_from(const ChainSchedule& schedule, const Chain::Value& value) {
  int32_t run = schedule.inside[value.block];
  for (int32_t b = value.block; b < value.end; ++b) run = std::min(run, schedule.state[b]);
  return run;
}

}  // namespace

Actions actions_of(const Graph& graph, const Chain& chain, const ChainSchedule& schedule) {
  Actions actions(graph.values.size(), Action::kKeep);
  for (const Chain::Value& value : chain.values) {
    if (const int32_t run = held_from(schedule, value); run > 0) actions[value.id] = Action::recompute(run);
  }
  return actions;
}

}  // namespace remat::planners
