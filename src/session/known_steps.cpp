// What a session's planner remembers of the steps that it saw, and which of the next it wants to see.
#include <algorithm>
#include <utility>

#include "plan/operator_seconds.h"
#include "plan/resize.h"
#include "plan/simulate.h"
#include "session/graph_match.h"
#include "session/step_planner.h"

namespace remat {
namespace {

constexpr size_t kMostKnown = 32;    ///< different steps: lengths that inputs are padded to, say
constexpr size_t kMostSizes = 6;     ///< of them of one structure, of which only few can be told apart
constexpr double kMuchLarger = 1.1;  ///< a step that takes this many times the bytes is searched for anew
constexpr double kLeastMargin = 0.005, kMostMargin = 0.08;  ///< see margin_
constexpr double kHardlyAny = 0.01;                         ///< of a step's time: no search can win more than that back
constexpr double kMostScale = 4;      ///< by bytes, of an operator's seconds: what takes next to nothing tells nothing
constexpr int64_t kFewEvictions = 8;  ///< in a step that follows a plan well
constexpr unsigned kManyChanges = 8;  ///< of what a step does to memory
constexpr int kLook = 8;              ///< steps
constexpr int kLongestPause = 64;     ///< surprises

/// By an operator.
double made_bytes(const Graph& graph, size_t index) {
  double bytes = 1;
  for (const int32_t made : graph.operators[index].results) {
    bytes += static_cast<double>(graph.values[static_cast<size_t>(made)].bytes);
  }
  return bytes;
}

double median(std::vector<double>& numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

const StepPlanner::KnownStep* StepPlanner::find(uint64_t fingerprint) const {
  const auto step = std::ranges::find(known_, fingerprint, &KnownStep::fingerprint);
  return step == known_.end() ? nullptr : &*step;
}

bool StepPlanner::wants_trace() const {
  if (planner_ == "online" && !given_) return false;
  if (to_look_for_ > 0 || known_.empty()) return true;
  // Where operators come and go every step may have another structure.
  return new_ones_ > 0 && times_seen(known_.front().structure) < kSamples;
}

void StepPlanner::note(bool followed, int64_t evictions, bool traced) {
  const bool well = followed && evictions <= kFewEvictions;
  if (followed) margin_ = std::clamp(margin_ * (well ? 0.8 : 2), kLeastMargin, kMostMargin);
  if (well || traced) return;
  if (to_ignore_ > 0) {
    --to_ignore_;
    return;
  }
  to_look_for_ = kLook;
  new_ones_ = std::max(new_ones_, static_cast<int>(kSamples));
  to_ignore_ = pause_;
  pause_ = std::min(kLongestPause, 2 * pause_ + 1);
}

size_t StepPlanner::times_seen(uint64_t structure) const {
  size_t times = 0;
  for (const KnownStep& step : known_) times += step.structure == structure ? step.samples.size() : 0;
  return times;
}

/// Of its structure.
bool StepPlanner::is_largest(const KnownStep& step) const {
  return std::ranges::none_of(known_, [&](const KnownStep& other) {
    return other.structure == step.structure && other.kept_peak > step.kept_peak;
  });
}

/// Times of other sizes count too while there are few: by the bytes that an operator makes.
void StepPlanner::use_medians(KnownStep& step) const {
  Graph& graph = step.graph;
  std::vector<double> seen;
  for (const StepTimes& sample : step.samples) seen.push_back(sample.step);
  graph.step_seconds = median(seen);
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    GraphOperator& op = graph.operators[o];
    seen.clear();
    for (const StepTimes& sample : step.samples) seen.push_back(sample.operators[o]);
    for (const KnownStep& other : known_) {
      if (&other == &step || other.structure != step.structure || step.samples.size() >= kSamples) continue;
      const double scale = made_bytes(graph, o) / made_bytes(other.graph, o);
      for (const StepTimes& sample : other.samples) seen.push_back(scale * sample.operators[o]);
    }
    set_seconds(op, median(seen));
  }
}

/// What contents can be packed to differs from step to step; a plan counts on the most that was seen.
void StepPlanner::use_largest_packed(const Graph& before, Graph& graph) {
  for (size_t v = 0; v < std::min(before.values.size(), graph.values.size()); ++v) {
    int64_t& now = graph.values[v].packed_bytes;
    const int64_t then = before.values[v].packed_bytes;
    now = now == 0 || then == 0 ? 0 : std::max(now, then);
  }
}

bool StepPlanner::same_memory(const Graph& a, const Graph& b) {
  const auto same_packed = [](const GraphValue& x, const GraphValue& y) { return x.packed_bytes == y.packed_bytes; };
  return a.events == b.events &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), same_packed);
}

/// Appends a known step and returns it. Takes an older one out where there are too many.
StepPlanner::KnownStep& StepPlanner::add(const Graph& graph, uint64_t fingerprint) {
  const uint64_t structure = structure_of(graph);
  const auto sizes = std::ranges::count(known_, structure, &KnownStep::structure);
  if (sizes == kMostSizes) {
    const auto oldest = std::find_if(known_.rbegin(), known_.rend(), [&](const KnownStep& step) {
      return step.structure == structure && !is_largest(step) && !step.found;
    });
    known_.erase(oldest != known_.rend() ? std::prev(oldest.base()) : known_.end() - 1);
  } else if (known_.size() == kMostKnown) {
    known_.pop_back();
  }
  KnownStep& step = known_.emplace_back();
  step.fingerprint = fingerprint;
  step.structure = structure;
  return step;
}

/// True if `step` is the largest of its structure and no step that was searched for takes nearly as much.
bool StepPlanner::needs_search(const KnownStep& step) const {
  return is_largest(step) && std::ranges::none_of(known_, [&](const KnownStep& other) {
           if (&other == &step || other.structure != step.structure) return false;
           const bool searched = other.found || other.exploration != nullptr;
           return searched && kMuchLarger * static_cast<double>(other.kept_peak) > static_cast<double>(step.kept_peak);
         });
}

/// False for a step that was seen once among others, which may never come again, unless others of its structure came.
bool StepPlanner::is_worth_planning(const KnownStep& step) const {
  return step.samples.size() > 1 || known_.size() == 1 || step.found || step.exploration != nullptr ||
         (times_seen(step.structure) > 1 && needs_search(step));
}

/// Returns the step to plan for after `seen` was: `seen` if it came again, or the one for which its structure is
/// searched.
StepPlanner::KnownStep& StepPlanner::step_to_plan(KnownStep& seen) {
  if (seen.samples.size() > 1) return seen;
  KnownStep* result = &seen;
  for (KnownStep& step : known_) {
    if (step.structure != seen.structure) continue;
    if (needs_search(step)) return step;
    const bool searched = step.found || step.exploration != nullptr;
    if (searched && (result == &seen || step.kept_peak > result->kept_peak)) result = &step;
  }
  return *result;
}

/// With the times that are known now: do the replays of the plan that was found take hardly any of the step?
bool StepPlanner::has_cheap_plan(const KnownStep& step) const {
  if (!step.found || !step.schedule || !step.schedule->plan.is_valid(step.graph)) return false;
  const Plan& plan = step.schedule->plan;
  return predict(step.graph, plan.actions, plan.budget_bytes).seconds < kHardlyAny * step.graph.step_seconds;
}

bool StepPlanner::is_changed(const Graph& graph) const {
  const KnownStep* const before = find(graph.fingerprint());
  return before != nullptr && before->graph.events != graph.events;
}

void StepPlanner::observe(Graph graph, int64_t room, bool changed, bool once, int64_t saved) {
  std::erase_if(known_, [](const KnownStep& step) { return step.once; });
  const uint64_t fingerprint = graph.fingerprint();
  to_look_for_ = std::max(0, to_look_for_ - 1);
  if (find(fingerprint) == nullptr) {
    to_look_for_ = 0;
    add(graph, fingerprint);
  }
  const auto step = std::ranges::find(known_, fingerprint, &KnownStep::fingerprint);
  std::rotate(known_.begin(), step, step + 1);
  KnownStep& seen = known_.front();
  seen.once = once && seen.samples.empty();
  StepTimes times{.operators = {}, .step = graph.step_seconds};
  for (const GraphOperator& op : graph.operators) times.operators.push_back(op.seconds);
  use_largest_packed(seen.graph, graph);
  changed = changed || !same_memory(seen.graph, graph);
  const bool other_tier = seen.graph.tier.has_value() != graph.tier.has_value();  // plans that move values do not fit
  seen.graph = std::move(graph);
  seen.kept_peak = kept_peak_bytes(seen.graph) - seen.graph.baseline_bytes;
  seen.saves = std::ranges::any_of(seen.graph.values, [](const GraphValue& value) { return value.returns(); });
  seen.saved = saved;
  const size_t before = times_seen(seen.structure);
  if (before == 0) new_ones_ = std::max(0, new_ones_ - 1);
  const bool more = seen.samples.size() < kSamples;
  if (more) seen.samples.push_back(std::move(times));
  KnownStep& planned = step_to_plan(seen);
  use_medians(seen);
  if (&planned != &seen) use_medians(planned);
  // After 1, 2 and 4 steps the times are worth a new plan.
  const size_t count = &planned == &seen && seen.samples.size() > 1 ? seen.samples.size() : before + 1;
  // Micro-batches alternate: in the first gradients are made, in the others they are there. Where no plan fits both,
  // each is planned anew a few times, then ever more rarely.
  if (changed) ++seen.changes;
  const bool often = seen.changes > kManyChanges && (seen.changes & (seen.changes - 1)) != 0;
  const bool other_memory = changed && !often && &planned == &seen;
  const bool better_times = more && count <= kSamples && (count & (count - 1)) == 0;
  const bool news = other_memory || (better_times && !has_cheap_plan(planned));
  if (news) plan_anew(planned, room);
  if (other_tier && !(news && &planned == &seen)) plan_anew(seen, room);
}

void StepPlanner::note_refused(const std::shared_ptr<const Schedule>& followed) {
  to_look_for_ = 0;  // a trace keeps records whole, which takes some memory until they are released
  for (KnownStep& step : known_) {
    if (followed == nullptr) {
      step.refused_room = -1;
    } else if (step.schedule == followed) {
      step.refused_room = room_;
    }
  }
}

void StepPlanner::plan_anew(KnownStep& step, int64_t room) {
  step.refused_room = -1;
  for (KnownStep& other : known_) {
    if (other.structure == step.structure) other.room.reset();
  }
  step.found.reset();
  step.trial.reset();
  step.explored_rooms.clear();
  step.has_curve = false;
  step.moves = 0;
  step.exploration = Search();  // waits for one that nobody asked for
  if (planner_ != "auto") return;
  const int64_t budget = step.budget_within(room);
  // Else only where it turns out to be needed.
  if (!given_plan(step, budget) && !plain_plan(step, budget)) explore(step, room);
}

void StepPlanner::learn_times(const FollowedTimes& followed, int64_t room) {
  const Schedule& schedule = *followed.schedule;
  const auto searched = std::ranges::find_if(known_, [&](const KnownStep& step) {
    return step.structure == schedule.structure && step.found && step.samples.size() < kSamples;
  });
  if (searched == known_.end() || times_seen(schedule.structure) >= kSamples) return;
  StepTimes times{.operators = {}, .step = searched->samples.front().step};
  for (size_t o = 0; o < followed.seconds.size(); ++o) {
    const double seconds = followed.seconds[o];
    const double scale = made_bytes(searched->graph, o) / made_bytes(schedule.graph, o);
    const bool tells = seconds >= 0 && scale < kMostScale && kMostScale * scale > 1;
    times.operators.push_back(tells ? scale * seconds : searched->samples.front().operators[o]);
  }
  searched->samples.push_back(std::move(times));
  use_medians(*searched);
  const size_t count = times_seen(schedule.structure);
  if ((count & (count - 1)) == 0 && !has_cheap_plan(*searched)) plan_anew(*searched, room);
}

const Graph* StepPlanner::graph_like(const Tape& tape) const {
  for (const KnownStep& step : known_) {
    if (begins_like(tape, step.graph, tape.forgotten_from)) return &step.graph;
  }
  return nullptr;
}

std::optional<int64_t> StepPlanner::lowest_plan(const Graph& graph) const {
  const auto known = std::ranges::find_if(known_, [&](const KnownStep& step) { return &step.graph == &graph; });
  if (known == known_.end() || !known->found) return std::nullopt;
  return known->found->front.lowest_peak() - known->explored_baseline;
}

bool StepPlanner::covers(const Tape& tape, int64_t request) const {
  return std::ranges::any_of(known_, [&](const KnownStep& step) {
    // An evaluation may take what it takes, and tells nothing of a step that can drop values.
    const bool alike = step.saves || tape.counts.saved_values <= step.saved;
    if (!alike || step.graph.operators.empty() ||
        compare_sizes(tape, step.graph, tape.forgotten_from) != Sizes::kNotLarger)
      return false;
    if (tape.program.size() >= step.graph.operators.size()) return true;
    const GraphOperator& next = step.graph.operators[tape.program.size()];
    int64_t most = next.scratch_bytes;
    for (const int32_t made : next.results) most = std::max(most, step.graph.values[static_cast<size_t>(made)].bytes);
    return request <= most;
  });
}

bool StepPlanner::fits_in_plain(const Tape& tape, int64_t room, int64_t gradients) const {
  bool any = false;
  for (const KnownStep& step : known_) {
    if (compare_sizes(tape, step.graph, tape.forgotten_from) != Sizes::kNotLarger) continue;
    const int64_t new_gradients = std::max<int64_t>(0, step.graph.gradient_bytes - gradients);
    if (step.kept_peak + new_gradients > room) return false;
    any = true;
  }
  return any;
}

bool StepPlanner::covers_unrecorded(int64_t plain) const {
  return std::ranges::any_of(known_, [&](const KnownStep& step) {
    return step.graph.operators.empty() && step.saved >= 0 && step.kept_peak >= plain;
  });
}

bool StepPlanner::is_outgrown_by(const Tape& tape, int64_t request) const {
  const bool any = std::ranges::any_of(known_, [&](const KnownStep& step) {
    return compare_sizes(tape, step.graph, tape.forgotten_from) != Sizes::kOther;
  });
  return any && !covers(tape, request);
}

}  // namespace remat
