// src/plan/other_sizes.h -- what predictions of a step in other sizes have in common.
#pragma once

#include <algorithm>

#include <remat/graph.h>

namespace remat {

/// `graph`: `base` with other bytes. Seconds grow with the bytes of the results.
inline void scale_seconds(Graph& graph, const Graph& base) {
  double grown = 0, before = 0;
  for (GraphOperator& op : graph.operators) {
    double own = 1, then = 1;
    for (const int32_t made : op.results) {
      own += static_cast<double>(graph.values[static_cast<size_t>(made)].bytes);
      then += static_cast<double>(base.values[static_cast<size_t>(made)].bytes);
    }
    before += op.seconds;
    op.seconds *= own / then;
    op.replay_seconds *= own / then;
    grown += op.seconds;
  }
  if (before > 0) graph.step_seconds *= grown / before;
}

/// Predicted bytes are not exact: a sound event's rise has room for what it reuses.
inline void limit_reused(GraphEvent& event) {
  event.reused = std::min(event.reused, event.rise - std::max<int64_t>(0, event.delta));
}

}  // namespace remat
