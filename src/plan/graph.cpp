#include <remat/graph.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <remat/support/mix.h>
#include <remat/support/number_text.h>

namespace remat {
namespace {

// The sums of all bytes and of all times of a graph are at most these. Planners add some of them several times (copies,
// replays of replays): the limits are low enough that no such sum overflows, whatever file the graph came from.
constexpr uint64_t kMostBytes = uint64_t{1} << 60U;
constexpr double kMostSeconds = 1e12, kMostSecondsPerByte = 1e-3;

using Indexes = std::vector<int32_t>;

bool exists(int32_t index, size_t count) { return index >= 0 && static_cast<size_t>(index) < count; }

std::string numbered(const char* what, int64_t index) { return std::string(what) + " " + std::to_string(index); }

std::string there_are(size_t count, const char* what) {
  return "there are " + std::to_string(count) + " " + what + ", numbered from 0";
}

std::string counts_problem(const Graph& graph) {
  constexpr size_t most = std::numeric_limits<int32_t>::max();
  if (graph.values.size() <= most && graph.operators.size() <= most) return {};
  return std::to_string(graph.values.size()) + " values and " + std::to_string(graph.operators.size()) +
         " operators are more than an index of 32 bits can tell apart";
}

std::string values_problem(const Graph& graph) {
  int32_t latest = -1;  // the producer of the newest value that is not a leaf
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    const auto wrong = [v](const std::string& why) { return numbered("value", v) + " " + why; };
    if (value.bytes < 0) return wrong("has bytes " + std::to_string(value.bytes));
    if (value.packed_bytes < 0) return wrong("has packed_bytes " + std::to_string(value.packed_bytes));
    if (value.producer == -1) {
      if (value.returns())
        return wrong(std::string("is ") + (value.droppable ? "droppable" : "dropped") +
                     ", but no operator makes it: its producer is -1");
      continue;
    }
    if (value.droppable && value.dropped) return wrong("is both droppable and dropped");
    if (!exists(value.producer, graph.operators.size()))
      return wrong("has producer " + std::to_string(value.producer) + "; " +
                   there_are(graph.operators.size(), "operators"));
    if (value.producer < latest)
      return wrong("has producer " + std::to_string(value.producer) + ", an older value has " + std::to_string(latest) +
                   "; values are numbered in the order in which they came to be");
    latest = value.producer;
  }
  return {};
}

/// Goes through the operators in order and remembers which operator read and wrote each value last, so that duplicates
/// in a list are found without a set.
class OperatorCheck {
 public:
  explicit OperatorCheck(const Graph& graph)
      : graph_(graph),
        reader_(graph.values.size(), -1),
        writer_(graph.values.size(), -1),
        made_(graph.values.size(), false) {}

  std::string problem() {
    for (int32_t o = 0; o < static_cast<int32_t>(graph_.operators.size()); ++o) {
      const GraphOperator& op = graph_.operators[o];
      std::string wrong = inputs_problem(op.inputs, o);
      if (wrong.empty()) wrong = overwritten_problem(op.overwritten, o);
      if (wrong.empty()) wrong = results_problem(op, o);
      if (!wrong.empty()) return numbered("operator", o) + " " + wrong;
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].producer >= 0 && !made_[v])
        return numbered("value", v) + " says that operator " + std::to_string(graph_.values[v].producer) +
               " makes it, but it is not among that operator's results";
    }
    return {};
  }

 private:
  std::string inputs_problem(const Indexes& inputs, int32_t o) {
    for (const int32_t v : inputs) {
      if (!exists(v, reader_.size())) return numbered("reads value", v) + "; " + there_are(reader_.size(), "values");
      if (reader_[v] == o) return numbered("has value", v) + " twice among its inputs";
      if (graph_.values[v].producer >= o)
        return numbered("reads value", v) + ", which operator " + std::to_string(graph_.values[v].producer) +
               " has yet to make";
      reader_[v] = o;
    }
    return {};
  }

  std::string overwritten_problem(const Indexes& overwritten, int32_t o) {
    for (const int32_t v : overwritten) {
      if (!exists(v, reader_.size()))
        return numbered("overwrites value", v) + "; " + there_are(reader_.size(), "values");
      if (reader_[v] != o) return numbered("overwrites value", v) + ", which is not among its inputs";
      if (writer_[v] == o) return numbered("has value", v) + " twice among what it overwrites";
      writer_[v] = o;
    }
    return {};
  }

  std::string results_problem(const GraphOperator& op, int32_t o) {
    const int32_t newest_input = op.inputs.empty() ? -1 : *std::max_element(op.inputs.begin(), op.inputs.end());
    for (const int32_t v : op.results) {
      if (!exists(v, made_.size())) return numbered("makes value", v) + "; " + there_are(made_.size(), "values");
      if (graph_.values[v].producer != o)
        return numbered("makes value", v) + ", which says that its producer is " +
               std::to_string(graph_.values[v].producer);
      if (made_[v]) return numbered("has value", v) + " twice among its results";
      if (v < newest_input)
        return numbered("makes value", v) + " from the newer value " + std::to_string(newest_input) +
               "; values are numbered in the order in which they came to be";
      made_[v] = true;
    }
    return {};
  }

  const Graph& graph_;
  // By value: the last operator that has it among its inputs, and among those that it overwrites.
  std::vector<int32_t> reader_, writer_;
  std::vector<bool> made_;
};

std::string operators_problem(const Graph& graph) { return OperatorCheck(graph).problem(); }

/// The sums of all bytes and of all times of a graph; that of bytes stops just above its limit.
struct Sums {
  uint64_t bytes = 0;
  double seconds = 0;

  void add(int64_t count) {  // at most 2^60 + 2^63: never wraps
    bytes =
        std::min(bytes + (count < 0 ? -static_cast<uint64_t>(count) : static_cast<uint64_t>(count)), kMostBytes + 1);
  }
};

std::string time_problem(const char* name, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) return {};
  return std::string("has ") + name + " " + support::short_text(seconds) + "; a time is finite and not negative";
}

std::string operator_sizes_problem(const GraphOperator& op) {
  if (op.scratch_bytes < 0) return "has scratch_bytes " + std::to_string(op.scratch_bytes);
  std::string wrong = time_problem("seconds", op.seconds);
  return wrong.empty() ? time_problem("replay_seconds", op.replay_seconds) : wrong;
}

std::string event_sizes_problem(const GraphEvent& event) {
  if (event.rise < 0) return "has rise " + std::to_string(event.rise);
  if (event.delta > event.rise)
    return "has delta " + std::to_string(event.delta) + ", which is above its rise " + std::to_string(event.rise);
  const int64_t most = event.rise - std::max<int64_t>(0, event.delta);
  if (event.reused >= 0 && event.reused <= most) return {};
  return "has reused " + std::to_string(event.reused) + ", which its rise " + std::to_string(event.rise) +
         " and delta " + std::to_string(event.delta) + " allow from 0 to " + std::to_string(most);
}

std::string sizes_problem(const Graph& graph) {
  if (graph.baseline_bytes < 0) return "the graph has baseline_bytes " + std::to_string(graph.baseline_bytes);
  for (const auto& [name, bytes] :
       {std::pair{"parameter_bytes", graph.parameter_bytes}, std::pair{"gradient_bytes", graph.gradient_bytes}}) {
    if (bytes < 0) return std::string("the graph has ") + name + " " + std::to_string(bytes);
  }
  if (graph.parameter_bytes > graph.baseline_bytes ||
      graph.gradient_bytes > graph.baseline_bytes - graph.parameter_bytes) {
    return "the graph has parameter_bytes " + std::to_string(graph.parameter_bytes) + " and gradient_bytes " +
           std::to_string(graph.gradient_bytes) + ", together above its baseline_bytes " +
           std::to_string(graph.baseline_bytes);
  }
  if (std::string wrong = time_problem("step_seconds", graph.step_seconds); !wrong.empty()) return "the graph " + wrong;
  if (graph.tier) {
    if (graph.tier->bytes < 0) return "the tier has bytes " + std::to_string(graph.tier->bytes);
    if (std::string wrong = time_problem("copy_seconds", graph.tier->copy_seconds); !wrong.empty())
      return "the tier " + wrong;
    for (const FormCosts::Seconds& seconds : {graph.tier->costs.out, graph.tier->costs.in}) {
      for (const double each : {seconds.compute, seconds.copy}) {
        if (std::string wrong = time_problem("a cost of", each); !wrong.empty()) return "the tier " + wrong;
        if (each > kMostSecondsPerByte) return "the tier has a cost of more than 1e-3 seconds for each byte";
      }
    }
  }
  Sums sums;
  sums.add(graph.baseline_bytes);
  sums.seconds += graph.step_seconds;
  for (const GraphValue& value : graph.values) {
    sums.add(value.bytes);
    sums.add(value.packed_bytes);
  }
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    const GraphOperator& op = graph.operators[o];
    if (std::string wrong = operator_sizes_problem(op); !wrong.empty()) return numbered("operator", o) + " " + wrong;
    sums.add(op.scratch_bytes);
    sums.seconds += op.seconds + op.replay_seconds;
  }
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    if (std::string wrong = event_sizes_problem(event); !wrong.empty()) return numbered("event", e) + " " + wrong;
    sums.add(event.rise);
    sums.add(event.delta);
  }
  if (sums.bytes > kMostBytes) return "the bytes of the graph add up to more than 2^60";
  if (sums.seconds > kMostSeconds) return "the times of the graph add up to more than 1e12 seconds";
  return {};
}

/// Follows the timeline: which operators have run, and the state of each value.
class TimelineCheck {
 public:
  explicit TimelineCheck(const Graph& graph) : graph_(graph), states_(graph.values.size(), State::kHeld) {}

  std::string problem() {
    int64_t level = graph_.baseline_bytes;  // of plain's memory
    for (size_t e = 0; e < graph_.events.size(); ++e) {
      const GraphEvent& event = graph_.events[e];
      if (std::string wrong = event_problem(event); !wrong.empty()) return numbered("event", e) + " " + wrong;
      if (event.kind == GraphEvent::Kind::kFree) level -= graph_.values[event.index].bytes;
      level += event.delta;
      if (level < 0) return numbered("event", e) + " leaves plain with " + std::to_string(level) + " bytes";
    }
    if (run_ < static_cast<int64_t>(graph_.operators.size()))
      return "no event runs " + numbered("operator", run_) + "; each runs once, in order";
    return {};
  }

 private:
  enum class State : uint8_t { kHeld, kIdle, kUsed, kFreed };

  std::string event_problem(const GraphEvent& event) {
    const int32_t index = event.index;
    switch (event.kind) {
      case GraphEvent::Kind::kOther:
        return index == -1 ? std::string() : "is of no kind with an index, but has index " + std::to_string(index);
      case GraphEvent::Kind::kOperator:
        if (!exists(index, graph_.operators.size()))
          return numbered("runs operator", index) + "; " + there_are(graph_.operators.size(), "operators");
        if (index != run_)
          return numbered("runs operator", index) + " where operator " + std::to_string(run_) +
                 " comes next; each runs once, in order";
        ++run_;
        return {};
      case GraphEvent::Kind::kIdle:
        return value_problem(index, State::kIdle, "makes idle");
      case GraphEvent::Kind::kUse:
        return value_problem(index, State::kUsed, "uses");
      case GraphEvent::Kind::kFree:
        return value_problem(index, State::kFreed, "frees");
    }
    return "has the unknown kind " + std::to_string(static_cast<int>(event.kind));
  }

  std::string value_problem(int32_t v, State next, const char* does) {
    const std::string what = numbered("value", v);
    const auto wrong = [&](const std::string& why) { return std::string(does) + " " + what + why; };
    if (!exists(v, graph_.values.size())) return wrong("; " + there_are(graph_.values.size(), "values"));
    const GraphValue& value = graph_.values[v];
    if (value.producer >= run_)
      return wrong(" before operator " + std::to_string(value.producer) + " has run, which makes it");
    // Of values that are never dropped or packed any order of events is sound.
    if (!value.returns() && value.packed_bytes == 0) return {};
    State& state = states_[v];
    if (state == State::kFreed) return wrong(", which has been freed before");
    if (next == State::kIdle && state == State::kIdle) return wrong(", which is idle already");
    state = next;
    return {};
  }

  const Graph& graph_;
  int64_t run_ = 0;  // operators
  std::vector<State> states_;
};

std::string timeline_problem(const Graph& graph) { return TimelineCheck(graph).problem(); }

/// Hashes 64-bit words with SplitMix64: integer arithmetic, the same on every machine. Fingerprints
/// are in files, so the hash must not change; a test has a known result.
class Mixer {
 public:
  void add(uint64_t word) { state_ = support::SplitMix(state_ ^ word).next(); }
  void add(const Indexes& indexes) {
    add(indexes.size());
    for (const int32_t index : indexes) add(static_cast<uint64_t>(index));
  }
  void add(const std::string& text) {
    add(text.size());
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  uint64_t result() const { return state_; }

 private:
  uint64_t state_ = 0;
};

}  // namespace

std::string Graph::problem() const {
  for (const auto check : {counts_problem, values_problem, operators_problem, sizes_problem, timeline_problem}) {
    if (std::string wrong = check(*this); !wrong.empty()) return wrong;
  }
  return {};
}

int64_t Graph::plain_peak_bytes() const {
  int64_t level = baseline_bytes, peak = level;
  for (const GraphEvent& event : events) {
    if (event.kind == GraphEvent::Kind::kFree) level -= values[static_cast<size_t>(event.index)].bytes;
    peak = std::max(peak, level + event.rise);
    level += event.delta;
  }
  return peak;
}

uint64_t Graph::fingerprint() const {
  Mixer mixer;
  mixer.add(values.size());
  for (const GraphValue& value : values) {
    mixer.add(static_cast<uint64_t>(value.bytes));
    mixer.add(static_cast<uint64_t>(value.producer));
    mixer.add(static_cast<uint64_t>(value.droppable) + 2 * static_cast<uint64_t>(value.dropped));
  }
  mixer.add(operators.size());
  for (const GraphOperator& op : operators) {
    mixer.add(op.name);
    mixer.add(op.inputs);
    mixer.add(op.overwritten);
    mixer.add(op.results);
  }
  mixer.add(events.size());
  for (const GraphEvent& event : events) {
    mixer.add(static_cast<uint64_t>(event.kind));
    mixer.add(static_cast<uint64_t>(event.index));
  }
  return mixer.result();
}

}  // namespace remat
