#include "plan/online_step.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/moves.h"
#include "plan/simulate.h"

namespace remat::planners {
namespace {

/// Replays after which a run ends: for each operator, and altogether.
constexpr int64_t kReplaysOfEach = 20, kMostReplaysOnline = 20'000;
/// Values looked at after which it ends: less than a second. Prices of evictions walk far where little may be alive.
constexpr int64_t kMostWorkOnline = int64_t{1} << 26;
/// Of so many values, each eviction frees at least a share of the limit: planning would take a square of their number
/// otherwise.
constexpr size_t kManyValues = 2000;
constexpr int64_t kShare = 512;

}  // namespace

OnlineStep::OnlineStep(const Graph& graph, PlannerOptions options)
    : graph_(graph),
      pack_(options.pack),
      changes_(changes_of(graph, ChangesOf::kEveryEvent)),
      initial_(initial_states(graph)),
      machine_(graph, states_, *this) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].returns()) returning_.push_back(static_cast<int32_t>(v));
  }
}

Actions OnlineStep::run(int64_t limit) {
  actions_.assign(graph_.values.size(), Action::kKeep);
  states_ = initial_;
  idle_.assign(graph_.values.size(), false);
  in_use_.clear();
  node_continues_ = false;
  limit_ = limit;
  drops_ = work_ = 0;
  visits_.assign(graph_.operators.size(), 0);
  visit_ = 0;
  machine_.level = peak_ = graph_.baseline_bytes;
  machine_.replays = 0;
  machine_.run(changes_.data(), changes_.data() + changes_.size(),
               [this](const StepChange& /*change*/, int64_t highest) {
                 peak_ = has_stopped() ? INT64_MAX : std::max(peak_, highest);
                 return !has_stopped();
               });
  return actions_;
}

/// A backward node asks for all its saved tensors before it allocates, and releases them when it is done.
void OnlineStep::begin(const StepChange& change) {
  const bool use = change.kind == GraphEvent::Kind::kUse;
  if (!node_continues_ || !use) in_use_.clear();
  node_continues_ = use && change.rise == 0 && change.delta == 0;
  if (use) in_use_.push_back(change.value);
  if (change.kind == GraphEvent::Kind::kIdle) idle_[change.value] = true;
}

bool OnlineStep::has_stopped() const {
  const int64_t most = kReplaysOfEach * static_cast<int64_t>(graph_.operators.size()) + 1000;
  return machine_.replays > std::min(most, kMostReplaysOnline) || work_ > kMostWorkOnline;
}

/// The graph and the states of its values, for EvictionChoice.
struct OnlineStep::View {
  OnlineStep& step;

  bool is_alive(uint32_t value) const {
    const ValueState::Memory memory = step.states_[value].memory;
    return memory == ValueState::Memory::kPresent || memory == ValueState::Memory::kTransient;
  }
  bool is_in_form(uint32_t value) const { return step.states_[value].has_form; }
  double restore_seconds(uint32_t value) const { return kPackingCosts.in.compute * static_cast<double>(bytes(value)); }
  /// It moves nothing: a plan that does is better made of one that does not (moves.h).
  static double move_seconds(uint32_t /*value*/) { return std::numeric_limits<double>::infinity(); }
  int64_t bytes(uint32_t value) const { return step.graph_.values[value].bytes; }
  int64_t packed_bytes(uint32_t value) const { return step.graph_.values[value].packed_bytes; }
  uint32_t producer(uint32_t value) const { return static_cast<uint32_t>(step.graph_.values[value].producer); }
  double seconds(uint32_t op) const { return step.machine_.operators().seconds(static_cast<int32_t>(op)); }
  uint32_t& visit(uint32_t op) { return step.visits_[op]; }
  template <class Visit>
  void for_each_input(uint32_t op, Visit visit) const {
    for (const int32_t input : step.machine_.operators().inputs(static_cast<int32_t>(op))) {
      visit(static_cast<uint32_t>(input));
    }
  }
  int64_t evict(const EvictionOption& option) { return step.take(option); }
};

bool OnlineStep::may_be_evicted(int32_t value) const {
  return idle_[value] && machine_.reads_to_come(value) == 0 && std::ranges::find(in_use_, value) == in_use_.end();
}

std::vector<EvictionOption> OnlineStep::options() const {
  using Kind = EvictionOption::Kind;
  std::vector<EvictionOption> options;
  for (const int32_t v : returning_) {
    if (!may_be_evicted(v)) continue;
    const ValueState& state = states_[v];
    const auto add = [&](Kind kind) { options.push_back({kind, static_cast<uint32_t>(v)}); };
    if (state.memory == ValueState::Memory::kPresent) {
      add(Kind::kDrop);
      if (pack_ && graph_.values[v].packed_bytes > 0 && !state.has_form) add(Kind::kPack);
    } else if (state.memory == ValueState::Memory::kInForm) {
      add(Kind::kDropPacked);
    }
  }
  thin_out(options, static_cast<uint64_t>(drops_));
  return options;
}

int64_t OnlineStep::evict(int64_t level) {
  if (level <= limit_ || has_stopped()) return 0;
  work_ += static_cast<int64_t>(returning_.size());
  std::vector<EvictionOption> left = options();
  if (left.empty()) return 0;
  View view{*this};
  EvictionChoice<View> choice(view, ++visit_);
  for (const int32_t v : returning_) {
    const bool gone = states_[v].memory == ValueState::Memory::kGone;
    if (idle_[v] && gone && states_[v].uses > 0) choice.pay(static_cast<uint32_t>(v));
  }
  int64_t bytes = level - limit_;
  if (returning_.size() >= kManyValues) {
    bytes = std::max(bytes, std::max<int64_t>(0, limit_ - graph_.baseline_bytes) / kShare);
  }
  const int64_t freed = choice.evict(std::move(left), bytes);
  work_ += choice.work();
  return freed;
}

int64_t OnlineStep::take(const EvictionOption& option) {
  using Kind = EvictionOption::Kind;
  const GraphValue& value = graph_.values[option.value];
  ValueState& state = states_[option.value];
  ++drops_;
  if (option.kind == Kind::kPack) state.has_form = true;
  if (option.kind == Kind::kDropPacked) state.has_form = false;
  state.memory = state.has_form ? ValueState::Memory::kInForm : ValueState::Memory::kGone;
  actions_[option.value] = state.has_form ? Action::kPack : Action::recompute(1 + state.recomputes);
  if (option.kind == Kind::kDropPacked) return value.packed_bytes;
  return option.kind == Kind::kPack ? value.bytes - value.packed_bytes : value.bytes;
}

}  // namespace remat::planners

namespace remat {

namespace {

int64_t smallest_without_moves(const Graph& graph, PlannerOptions options) {
  planners::OnlineStep step(graph, options);
  step.run(INT64_MAX);
  int64_t smallest = step.peak_bytes(), too_small = graph.baseline_bytes - 1;
  const int64_t close = std::max<int64_t>(1, (smallest - graph.baseline_bytes) / 256);
  while (smallest - too_small > close) {
    const int64_t limit = too_small + (smallest - too_small) / 2;
    step.run(limit);
    if (step.peak_bytes() > limit) {
      too_small = limit;
    } else {
      smallest = step.peak_bytes();
    }
  }
  return smallest;
}

/// All that a step may move is moved, where the tier has room for that.
std::optional<Graph> graph_beside_all_moves(const Graph& graph) {
  std::vector<bool> moved(graph.values.size(), false);
  planners::Actions actions(graph.values.size(), Action::kKeep);
  for (const int32_t v : planners::worth_moving(graph)) {
    moved[static_cast<size_t>(v)] = true;
    actions[static_cast<size_t>(v)] = Action::kMove;
  }
  if (Simulator(graph).run(actions, /*limit=*/0).tier_bytes > graph.tier->bytes) return std::nullopt;
  return planners::graph_beside_moves(graph, moved);
}

}  // namespace

int64_t smallest_online_budget(const Graph& graph, PlannerOptions options) {
  const int64_t smallest = smallest_without_moves(graph, options);
  if (!graph.tier || !options.move) return smallest;
  const std::optional<Graph> rest = graph_beside_all_moves(graph);
  return rest ? std::min(smallest, smallest_without_moves(*rest, options)) : smallest;
}

}  // namespace remat
