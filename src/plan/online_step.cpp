#include "plan/online_step.h"

#include <algorithm>
#include <utility>

#include "plan/candidates.h"
#include "plan/costs.h"

namespace remat::planners {
namespace {

constexpr double kLeastSeconds = 1e-6;
constexpr size_t kMostOptions = 256;
/// Replays after which nothing more is given up: for each operator, and altogether.
constexpr int64_t kMostReplaysOfEach = 20, kMostReplays = 20'000;
/// With so many values memory is made in steps of a share of the limit, or planning would take a square of their
/// number.
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
  drops_ = 0;
  visits_.assign(graph_.operators.size(), 0);
  visit_ = 0;
  machine_.level = peak_ = graph_.baseline_bytes;
  machine_.replays = 0;
  machine_.run(changes_.data(), changes_.data() + changes_.size(),
               [this](const StepChange& /*change*/, int64_t highest) {
                 peak_ = std::max(peak_, highest);
                 return true;
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

bool OnlineStep::gave_up() const {
  const int64_t most = kMostReplaysOfEach * static_cast<int64_t>(graph_.operators.size()) + 1000;
  return machine_.replays > std::min(most, kMostReplays);
}

bool OnlineStep::is_there(int32_t value) const {
  const ValueState::Memory memory = states_[value].memory;
  return memory == ValueState::Memory::kPresent || memory == ValueState::Memory::kTransient;
}

bool OnlineStep::may_be_evicted(int32_t value) const {
  return idle_[value] && machine_.reads_to_come(value) == 0 && std::ranges::find(in_use_, value) == in_use_.end();
}

std::vector<OnlineStep::Option> OnlineStep::options() const {
  std::vector<Option> options;
  for (const int32_t v : returning_) {
    if (!may_be_evicted(v)) continue;
    const ValueState& state = states_[v];
    if (state.memory == ValueState::Memory::kPresent) {
      options.push_back({Option::Kind::kDrop, v});
      if (pack_ && graph_.values[v].packed_bytes > 0 && !state.has_bits) options.push_back({Option::Kind::kPack, v});
    } else if (state.memory == ValueState::Memory::kPacked) {
      options.push_back({Option::Kind::kDropPacked, v});
    }
  }
  // Where there are very many, every n-th, as at run time.
  if (const size_t stride = options.size() / kMostOptions; stride > 1) {
    size_t count = 0;
    for (size_t i = static_cast<size_t>(drops_) % stride; i < options.size(); i += stride) {
      options[count++] = options[i];
    }
    options.resize(count);
  }
  return options;
}

int64_t OnlineStep::evict(int64_t level) {
  if (level <= limit_ || gave_up()) return 0;
  std::vector<Option> left = options();
  if (left.empty()) return 0;
  int64_t bytes = level - limit_;
  if (returning_.size() >= kManyValues) {
    bytes = std::max(bytes, std::max<int64_t>(0, limit_ - graph_.baseline_bytes) / kShare);
  }
  paid_ = ++visit_;
  for (const int32_t v : returning_) {
    const bool gone = states_[v].memory == ValueState::Memory::kGone;
    if (idle_[v] && gone && states_[v].uses > 0) walk(v, /*pay=*/true);
  }
  int64_t freed = 0;
  while (freed < bytes && !left.empty()) {
    size_t best = 0;
    double best_price = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      const double p = price(left[i]);
      if (i > 0 && p >= best_price) continue;
      best = i;
      best_price = p;
    }
    const Option chosen = left[best];
    freed += take(chosen);
    if (!states_[chosen.value].has_bits) walk(chosen.value, /*pay=*/true);
    std::erase_if(left, [&](const Option& option) { return option.value == chosen.value; });
  }
  return freed;
}

int64_t OnlineStep::take(const Option& option) {
  const GraphValue& value = graph_.values[option.value];
  ValueState& state = states_[option.value];
  ++drops_;
  int64_t freed = option.kind == Option::Kind::kDropPacked ? value.packed_bytes : value.bytes;
  if (option.kind == Option::Kind::kPack) freed -= value.packed_bytes;
  if (option.kind == Option::Kind::kPack) state.has_bits = true;
  if (option.kind == Option::Kind::kDropPacked) state.has_bits = false;
  state.memory = state.has_bits ? ValueState::Memory::kPacked : ValueState::Memory::kGone;
  actions_[option.value] = state.has_bits ? Action::kPack : Action::recompute(1 + state.made);
  return freed;
}

double OnlineStep::price(const Option& option) {
  const GraphValue& value = graph_.values[option.value];
  const auto bytes = static_cast<double>(value.bytes), packed = static_cast<double>(value.packed_bytes);
  if (option.kind == Option::Kind::kPack) {
    const double seconds = bytes * (kPackSecondsPerByte + kUnpackSecondsPerByte);
    return (seconds + kLeastSeconds) / std::max(1.0, bytes - packed);
  }
  const bool of_packed = option.kind == Option::Kind::kDropPacked;
  return (walk(option.value, false, of_packed) + kLeastSeconds) / std::max(1.0, of_packed ? packed : bytes);
}

/// Seconds of the operators between `value` and what is there or packed, those paid for left out.
double OnlineStep::walk(int32_t value, bool pay, bool packed_too) {
  double seconds = 0;
  seen_.clear();
  stack_.assign(1, value);
  while (!stack_.empty()) {
    const int32_t next = stack_.back();
    stack_.pop_back();
    if (states_[next].has_bits && !(packed_too && next == value)) {
      seconds += kUnpackSecondsPerByte * static_cast<double>(graph_.values[next].bytes);
      continue;
    }
    const int32_t producer = graph_.values[next].producer;
    if (producer < 0 || visits_[producer] == paid_) continue;
    seen_.emplace_back(producer, visits_[producer]);
    visits_[producer] = paid_;
    seconds += machine_.operators().seconds(producer);
    for (const int32_t input : machine_.operators().inputs(producer)) {
      if (!is_there(input)) stack_.push_back(input);
    }
  }
  if (!pay) {
    for (const auto& [op, before] : seen_) visits_[op] = before;
  }
  return seconds;
}

int64_t smallest_online_limit(const Graph& graph, PlannerOptions options) {
  OnlineStep step(graph, options);
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

}  // namespace remat::planners
