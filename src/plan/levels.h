// src/plan/levels.h -- a step's memory where some values are dropped from when they become idle until their next use,
// as if recomputing them took no memory.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// Calls `visit(event, bytes)` for each event in order, with the most bytes alive until the next one, baseline
/// included. `is_dropped(value)`: whether the GraphValue is dropped when it becomes idle.
template <class IsDropped, class Visit>
void for_each_level(const Graph& graph, IsDropped is_dropped, Visit visit) {
  std::vector<bool> dropped(graph.values.size(), false);
  int64_t level = graph.baseline_bytes;
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kIdle && is_dropped(graph.values[event.index])) {
      level -= graph.values[event.index].bytes;
      dropped[event.index] = true;
    } else if (event.kind == GraphEvent::Kind::kUse && dropped[event.index]) {
      level += graph.values[event.index].bytes;
      dropped[event.index] = false;
    } else if (event.kind == GraphEvent::Kind::kFree) {
      if (!dropped[event.index]) level -= graph.values[event.index].bytes;
      dropped[event.index] = false;
    }
    visit(e, level + event.step_rise());
    level += event.delta;
  }
}

}  // namespace remat
