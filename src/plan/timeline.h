// src/plan/timeline.h -- a step's memory where some values are away from when they are put away until they are used, as
// if it took nothing to bring them back.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// Calls `visit(event, bytes)` for each event in order, with the most bytes alive until the next one, baseline
/// included. `is_away`: says of a GraphValue whether it goes when it is put away.
template <class IsAway, class Visit>
void for_each_level(const Graph& graph, IsAway is_away, Visit visit) {
  std::vector<bool> away(graph.values.size(), false);
  int64_t level = graph.baseline_bytes;
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kIdle && is_away(graph.values[event.index])) {
      level -= graph.values[event.index].bytes;
      away[event.index] = true;
    } else if (event.kind == GraphEvent::Kind::kUse && away[event.index]) {
      level += graph.values[event.index].bytes;
      away[event.index] = false;
    } else if (event.kind == GraphEvent::Kind::kFree) {
      if (!away[event.index]) level -= graph.values[event.index].bytes;
      away[event.index] = false;
    }
    visit(e, level + event.rise);
    level += event.delta;
  }
}

}  // namespace remat
