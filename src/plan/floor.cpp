// The lowest peak that any plan can have: at every moment, plain's bytes without each saved value that may be away
// then, as if replays took no memory.
#include <algorithm>
#include <cmath>
#include <optional>

#include <remat/budget.h>
#include <remat/planner.h>

namespace remat {
namespace {

/// Who runs after an event: the operator that comes next, or that whose saved value backward asked for last.
void name_operator(const Graph& graph, size_t event, Floor& floor) {
  using Kind = GraphEvent::Kind;
  const auto& events = graph.events;
  const auto next = std::find_if(events.begin() + static_cast<std::ptrdiff_t>(event) + 1, events.end(),
                                 [](const auto& e) { return e.kind == Kind::kOperator; });
  floor.backward = next == events.end();
  int32_t index = floor.backward ? -1 : next->index;
  for (size_t before = event + 1; index < 0 && before-- > 0;) {
    if (events[before].kind == Kind::kUse) index = graph.values[events[before].index].producer;
    if (events[before].kind == Kind::kOperator) index = events[before].index;
  }
  floor.operator_name = index < 0 ? "" : graph.operators[index].name;
}

}  // namespace

Floor floor_of(const Graph& graph) {
  Floor floor;
  floor.peak_bytes = floor.baseline_bytes = graph.baseline_bytes;
  floor.parameter_bytes = graph.parameter_bytes;
  floor.gradient_bytes = graph.gradient_bytes;
  std::vector<bool> away(graph.values.size(), false);
  int64_t level = graph.baseline_bytes;
  std::optional<size_t> peak_event;
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    const auto v = static_cast<size_t>(std::max(0, event.index));
    if (event.kind == GraphEvent::Kind::kIdle && graph.values[v].returns()) {
      level -= graph.values[v].bytes;
      away[v] = true;
    } else if (event.kind == GraphEvent::Kind::kUse && away[v]) {
      level += graph.values[v].bytes;
      away[v] = false;
    } else if (event.kind == GraphEvent::Kind::kFree) {
      if (!away[v]) level -= graph.values[v].bytes;
      away[v] = false;
    }
    if (level + event.rise > floor.peak_bytes) {
      floor.peak_bytes = level + event.rise;
      peak_event = e;
    }
    level += event.delta;
  }
  if (peak_event) name_operator(graph, *peak_event, floor);
  return floor;
}

std::string to_text(const Floor& floor) {
  const int64_t other = floor.baseline_bytes - floor.parameter_bytes - floor.gradient_bytes;
  std::string text;
  const auto add = [&](int64_t bytes, const std::string& what) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + format_bytes(bytes) + " " + what;
  };
  add(floor.parameter_bytes, "of parameters");
  add(floor.gradient_bytes, "of their gradients");
  add(other, floor.parameter_bytes > 0 ? "else before the step (optimizer state, inputs)" : "before the step");
  const std::string who = floor.operator_name.empty() ? "the step" : floor.operator_name;
  add(floor.activation_bytes(), "while " + who + (floor.backward ? " runs backward" : " runs"));
  return text.empty() ? "nothing" : text;
}

std::string advice(const Floor& floor, int64_t budget_bytes) {
  if (budget_bytes <= floor.baseline_bytes) return "use a smaller model, or an optimizer that holds less; or give more";
  const int64_t room = budget_bytes - floor.baseline_bytes;
  const double share = static_cast<double>(room) / static_cast<double>(std::max<int64_t>(1, floor.activation_bytes()));
  const auto percent = static_cast<int>(std::floor(100 * std::min(1.0, share)));
  if (percent > 0 && percent < 100)
    return "a batch of at most " + std::to_string(percent) + "% of this one may fit; or give more";
  return "give more, or less work per step";
}

}  // namespace remat
