// Watches the machine that simulates a step (step_machine.h): before each rise of memory it notes what is alive, and
// what for.
#include <algorithm>
#include <utility>

#include <remat/error.h>
#include <remat/timeline.h>

#include "plan/step_machine.h"
#include "plan/step_times.h"

namespace remat {
namespace {

/// By stretch of the step, at its end: bytes that plain has beyond its baseline and the saved values, and never fewer
/// of them later. They are there to stay: gradients, mostly.
std::vector<int64_t> staying_bytes(const Graph& graph, const std::vector<ValueState>& initial) {
  std::vector<int64_t> staying(graph.events.size() + 1, 0);
  int64_t rest = 0;  // may fall below 0, where a part of the baseline is freed
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kOperator) {
      for (const int32_t v : graph.operators[event.index].results) {
        if (initial[v].memory == ValueState::Memory::kPresent) rest -= graph.values[v].bytes;
      }
    } else if (event.kind == GraphEvent::Kind::kFree && graph.values[event.index].producer < 0) {
      rest -= graph.values[event.index].bytes;
    }
    staying[e + 1] = rest += event.delta;
  }
  for (size_t s = staying.size() - 1; s-- > 0;) staying[s] = std::min(staying[s], staying[s + 1]);
  return staying;
}

class Watch {
 public:
  Watch(const Graph& graph, const std::vector<Action>& actions, int64_t limit)
      : graph_(graph),
        actions_(actions),
        limit_(limit),
        times_(step_times(graph)),
        states_{initial_states(graph), {}},
        staying_(staying_bytes(graph, states_.states)),
        values_(graph.values.size()),
        machine_(graph, states_, *this) {
    for (size_t v = 0; v < values_.size(); ++v) {
      const GraphValue& value = graph.values[v];
      values_[v].keeps = !value.dropped && actions[v].kind == Action::Kind::kKeep;
    }
  }

  Timeline run() {
    machine_.set_moves(graph_.tier ? &times_ : nullptr, limit_);
    const std::vector<StepChange> changes = changes_of(graph_, ChangesOf::kEveryEvent);
    timeline_.moments.reserve(changes.size());
    machine_.level = graph_.baseline_bytes;
    machine_.run(changes.data(), changes.data() + changes.size(), [](const StepChange&, int64_t) { return true; });
    timeline_.timed = times_.timed;
    timeline_.end_seconds = times_.end_seconds + extra_seconds();
    // The value that backward asks for first may have to be recomputed: that is backward's.
    const auto first = std::ranges::find_if(
        timeline_.moments, [](const TimelineMoment& moment) { return moment.work != TimelineMoment::Work::kForward; });
    timeline_.backward_seconds = first == timeline_.moments.end() ? timeline_.end_seconds : first->begin_seconds;
    return std::move(timeline_);
  }

  // The policy of StepMachine.
  void begin(const StepChange& change) {
    ++stretch_;
    if (change.kind != GraphEvent::Kind::kOperator) return;
    for (const int32_t v : graph_.operators[change.value].results) {
      values_[v].born = true;
      count(v);
    }
  }
  Action action(int32_t value) const { return graph_.values[value].returns() ? actions_[value] : Action::kKeep; }
  bool holds(int32_t value, int32_t times) const { return actions_[value].holds(times); }
  void will_replay(int32_t index, int32_t target) { restoring_ = {TimelineMoment::Work::kRecompute, index, target}; }
  void will_unpack(int32_t value) { restoring_ = {TimelineMoment::Work::kUnpack, -1, value}; }
  int64_t evict(int64_t level) {
    for (const int32_t v : states_.touched) count(v);
    states_.touched.clear();
    add_moment(level);
    restoring_ = {};
    return 0;
  }

 private:
  using Memory = ValueState::Memory;

  struct Value {
    bool keeps = false;  ///< by the plan
    bool born = false;
    bool away = false;  ///< it has been given up, or was never saved
    MemoryParts counted;
  };
  struct Restoring {
    TimelineMoment::Work work = TimelineMoment::Work::kForward;
    int32_t op = -1, value = -1;
  };

  double extra_seconds() const { return times_.timed ? machine_.seconds : static_cast<double>(machine_.replays); }

  /// Only the parts that values make up.
  MemoryParts parts_of(int32_t v) {
    Value& value = values_[v];
    const ValueState& state = states_.states[v];
    MemoryParts parts;
    if (graph_.values[v].producer < 0 || !value.born) return parts;  // a leaf is in the baseline, or among temporaries
    if (state.memory == Memory::kGone || state.memory == Memory::kInForm) value.away = true;
    if (state.is_packed()) parts.packed = graph_.values[v].packed_bytes;
    if (state.memory == Memory::kPresent || state.memory == Memory::kTransient) {
      if (value.away) parts.recomputed = graph_.values[v].bytes;
      if (!value.away && value.keeps) parts.kept = graph_.values[v].bytes;  // others are temporaries until given up
    }
    return parts;
  }

  void count(int32_t v) {
    MemoryParts& counted = values_[v].counted;
    const MemoryParts now = parts_of(v);
    for (const auto part : {&MemoryParts::kept, &MemoryParts::packed, &MemoryParts::recomputed}) {
      parts_.*part += now.*part - counted.*part;
    }
    counted = now;
  }

  /// Memory is about to rise to `level`.
  void add_moment(int64_t level) {
    TimelineMoment moment;
    const StepTimes::Stretch& stretch = times_.stretches[stretch_];
    const bool restores = restoring_.value >= 0;
    moment.begin_seconds = stretch.begin_seconds + extra_seconds();
    moment.work = restores           ? restoring_.work
                  : stretch.backward ? TimelineMoment::Work::kBackward
                                     : TimelineMoment::Work::kForward;
    moment.index = restores ? restoring_.op : stretch.op;
    moment.value = restoring_.value;
    moment.parts = with_baseline(parts_, staying_[restores ? stretch_ - 1 : stretch_]);
    // All else that is alive is what the step works on; while it waits for a value, the rise is for that.
    moment.parts.temporaries = (restores ? machine_.level : level) - moment.parts.total();
    if (restores) moment.parts.recomputed += level - machine_.level;
    timeline_.moments.push_back(moment);
  }

  MemoryParts with_baseline(MemoryParts parts, int64_t staying) const {
    parts.parameters = graph_.parameter_bytes;
    parts.gradients = graph_.gradient_bytes;
    parts.optimizer = graph_.baseline_bytes - graph_.parameter_bytes - graph_.gradient_bytes;
    if (staying >= 0) {
      parts.gradients += staying;
      return parts;
    }
    // A part of the baseline is not there any more, or will not be.
    for (int64_t* part : {&parts.gradients, &parts.optimizer, &parts.parameters}) {
      const int64_t taken = std::min(*part, -staying);
      *part -= taken;
      staying += taken;
    }
    return parts;
  }

  const Graph& graph_;
  const std::vector<Action>& actions_;
  const int64_t limit_;
  const StepTimes times_;
  WatchedStates states_;
  const std::vector<int64_t> staying_;
  std::vector<Value> values_;
  StepMachine<WatchedStates, Watch> machine_;
  Timeline timeline_;
  MemoryParts parts_;  ///< of all values
  size_t stretch_ = SIZE_MAX;
  Restoring restoring_;
};

}  // namespace

int64_t Timeline::peak_bytes() const { return moments.empty() ? 0 : moments[peak_moment()].parts.total(); }

size_t Timeline::peak_moment() const {
  const auto peak = std::ranges::max_element(moments, {}, [](const TimelineMoment& m) { return m.parts.total(); });
  return static_cast<size_t>(peak - moments.begin());
}

Timeline make_timeline(const Graph& graph, const std::vector<Action>& actions, int64_t budget_bytes) {
  if (const std::string wrong = graph.problem(); !wrong.empty())
    throw Error("[timeline] the graph is not sound: " + wrong + "; record it again");
  Plan plan;
  plan.graph_fingerprint = graph.fingerprint();
  plan.actions = actions;
  if (const std::string wrong = plan.problem(graph); !wrong.empty())
    throw Error("[timeline] " + wrong + "; give one action for each value, as Plan::problem() asks");
  return Watch(graph, actions, budget_bytes > 0 ? budget_bytes : INT64_MAX).run();
}

Timeline make_timeline(const Graph& graph) {
  Graph plain = graph;
  for (GraphEvent& event : plain.events) event.reused = 0;
  return make_timeline(plain, std::vector<Action>(graph.values.size(), Action::kKeep));
}

}  // namespace remat
