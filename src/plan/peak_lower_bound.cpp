// The lower bound of the peak of all plans: the highest level of plain's memory without each value that may be dropped,
// from when it becomes idle until its next use, as if replays took no memory.
#include <algorithm>
#include <cmath>
#include <optional>

#include <remat/budget.h>
#include <remat/planner.h>

#include "plan/levels.h"

namespace remat {
namespace {

/// Names the operator that runs after an event: in the forward pass the next one, in the backward pass the producer of
/// the saved value that was used last.
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
  std::optional<size_t> peak_event;
  const auto may_be_dropped = [](const GraphValue& value) { return value.returns(); };
  for_each_level(graph, may_be_dropped, [&](size_t event, int64_t bytes) {
    if (bytes <= floor.peak_bytes) return;
    floor.peak_bytes = bytes;
    peak_event = event;
  });
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
  if (budget_bytes <= floor.baseline_bytes) return "use a smaller model, or an optimizer that holds less";
  const int64_t headroom = budget_bytes - floor.baseline_bytes;
  const double share =
      static_cast<double>(headroom) / static_cast<double>(std::max<int64_t>(1, floor.activation_bytes()));
  const auto percent = static_cast<int>(std::floor(100 * std::min(1.0, share)));
  if (percent > 0 && percent < 100)
    return "a batch of at most " + std::to_string(percent) + "% of this one may fit";
  return "use less work per step";
}

}  // namespace remat
