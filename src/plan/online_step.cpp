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
      saved_(saved_values(graph)),
      uses_after_(graph.events.size(), 0),
      replay_(graph) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].returns()) returning_.push_back(static_cast<int32_t>(v));
  }
  std::vector<int32_t> uses(graph.values.size(), 0);
  for (size_t e = graph.events.size(); e-- > 0;) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kUse) ++uses[event.index];
    if (event.kind == GraphEvent::Kind::kIdle) uses_after_[e] = std::exchange(uses[event.index], 0);
  }
}

Actions OnlineStep::run(int64_t limit) {
  const size_t values = graph_.values.size();
  actions_.assign(values, Action::kKeep);
  limit_ = limit;
  level_ = peak_ = graph_.baseline_bytes;
  replays_ = drops_ = 0;
  for (auto* const flags : {&idle_, &transient_, &has_bits_}) flags->assign(values, false);
  present_ = saved_;
  for (size_t v = 0; v < values; ++v) {
    present_[v] = present_[v] || graph_.values[v].producer < 0 || graph_.values[v].dropped;
  }
  uses_.assign(values, 0);
  made_.assign(values, 0);
  visits_.assign(graph_.operators.size(), 0);
  visit_ = 0;
  in_use_.clear();
  bool same_node = false;
  for (size_t e = 0; e < graph_.events.size(); ++e) {
    const GraphEvent& event = graph_.events[e];
    // A node of backward asks for all its saved tensors before it allocates, and lets go of them when it is done.
    if (!same_node || event.kind != GraphEvent::Kind::kUse) in_use_.clear();
    same_node = event.kind == GraphEvent::Kind::kUse && event.rise == 0 && event.delta == 0;
    if (event.kind == GraphEvent::Kind::kIdle) put_away(event.index, uses_after_[e]);
    if (event.kind == GraphEvent::Kind::kUse) use(event.index);
    if (event.kind == GraphEvent::Kind::kFree) free(event.index);
    make_room(event.rise);
    level_ += event.delta;
  }
  return actions_;
}

void OnlineStep::put_away(int32_t value, int32_t uses) {
  uses_[value] = uses;
  made_[value] = 0;
  idle_[value] = graph_.values[value].returns();
  if (!graph_.values[value].dropped || !present_[value]) return;
  present_[value] = false;
  level_ -= graph_.values[value].bytes;
}

void OnlineStep::use(int32_t value) {
  in_use_.push_back(value);
  if (!present_[value] && has_bits_[value]) unpack(value);
  if (!present_[value] && graph_.values[value].returns()) replay(value);
  --uses_[value];
}

void OnlineStep::free(int32_t value) {
  if (present_[value]) level_ -= graph_.values[value].bytes;
  if (has_bits_[value]) level_ -= graph_.values[value].packed_bytes;
  present_[value] = has_bits_[value] = idle_[value] = false;
}

void OnlineStep::unpack(int32_t value) {
  make_room(graph_.values[value].bytes);
  level_ += graph_.values[value].bytes;
  present_[value] = true;
}

void OnlineStep::replay(int32_t target) {
  const auto held = [this](int32_t value) { return present_[value] || has_bits_[value]; };
  for (const int32_t index : replay_.operators_for(target, held)) run_operator(index, target);
  replay_.reads[target] = 0;
}

void OnlineStep::run_operator(int32_t index, int32_t target) {
  for (const int32_t input : replay_.operators.inputs(index)) {
    if (!is_there(input) && has_bits_[input]) unpack(input);
  }
  for (const int32_t input : replay_.operators.overwritten(index)) {
    if (!transient_[input] || replay_.reads[input] != 1) continue;
    level_ -= graph_.values[input].bytes;
    transient_[input] = false;
  }
  int64_t made_bytes = 0;
  for (const int32_t made : replay_.operators.results(index)) made_bytes += graph_.values[made].bytes;
  make_room(made_bytes + replay_.operators.scratch_bytes(index));
  ++replays_;
  for (const int32_t made : replay_.operators.results(index)) {
    const GraphValue& value = graph_.values[made];
    if (is_there(made)) continue;
    ++made_[made];
    if (made == target || (value.returns() && uses_[made] > 0)) {
      level_ += value.bytes;
      present_[made] = true;
    } else if (replay_.reads[made] > 0) {
      level_ += value.bytes;
      transient_[made] = true;
    }
  }
  for (const int32_t input : replay_.operators.inputs(index)) end_read(input);
}

void OnlineStep::end_read(int32_t value) {
  if (--replay_.reads[value] > 0 || !transient_[value]) return;
  level_ -= graph_.values[value].bytes;
  transient_[value] = false;
}

bool OnlineStep::gave_up() const {
  return replays_ > std::min(kMostReplaysOfEach * static_cast<int64_t>(graph_.operators.size()) + 1000, kMostReplays);
}

void OnlineStep::make_room(int64_t bytes) {
  const int64_t excess = level_ + bytes - limit_;
  if (excess > 0 && !gave_up()) {
    const int64_t room = std::max<int64_t>(0, limit_ - graph_.baseline_bytes);
    evict(returning_.size() < kManyValues ? excess : std::max(excess, room / kShare));
  }
  peak_ = std::max(peak_, level_ + bytes);
}

std::vector<OnlineStep::Option> OnlineStep::options() const {
  std::vector<Option> options;
  for (const int32_t v : returning_) {
    if (!idle_[v] || replay_.reads[v] > 0) continue;
    if (std::ranges::find(in_use_, v) != in_use_.end()) continue;
    if (present_[v]) {
      options.push_back({Option::Kind::kDrop, v});
      if (pack_ && graph_.values[v].packed_bytes > 0 && !has_bits_[v]) options.push_back({Option::Kind::kPack, v});
    } else if (has_bits_[v]) {
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

void OnlineStep::evict(int64_t bytes) {
  std::vector<Option> left = options();
  if (left.empty()) return;
  paid_ = ++visit_;
  for (const int32_t v : returning_) {
    if (uses_[v] > 0 && idle_[v] && !present_[v] && !has_bits_[v]) walk(v, /*pay=*/true);
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
    if (!has_bits_[chosen.value]) walk(chosen.value, /*pay=*/true);
    std::erase_if(left, [&](const Option& option) { return option.value == chosen.value; });
  }
}

int64_t OnlineStep::take(const Option& option) {
  const int32_t v = option.value;
  const GraphValue& value = graph_.values[v];
  ++drops_;
  int64_t freed = value.bytes;
  if (option.kind == Option::Kind::kDropPacked) {
    freed = value.packed_bytes;
    has_bits_[v] = false;
  } else {
    present_[v] = false;
  }
  if (option.kind == Option::Kind::kPack) {
    freed -= value.packed_bytes;
    has_bits_[v] = true;
  }
  if (has_bits_[v]) {
    actions_[v] = Action::kPack;
  } else {
    actions_[v] = Action::recompute(1 + made_[v]);
  }
  level_ -= freed;
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
    if (has_bits_[next] && !(packed_too && next == value)) {
      seconds += kUnpackSecondsPerByte * static_cast<double>(graph_.values[next].bytes);
      continue;
    }
    const int32_t producer = graph_.values[next].producer;
    if (producer < 0 || visits_[producer] == paid_) continue;
    seen_.emplace_back(producer, visits_[producer]);
    visits_[producer] = paid_;
    seconds += replay_.operators.seconds(producer);
    for (const int32_t input : replay_.operators.inputs(producer)) {
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
