// src/plan/operator_seconds.h -- gives an operator of a graph another time.
#pragma once

#include <remat/graph.h>

namespace remat {

/// A replay takes the same share of it as before; all of it where it took no time.
inline void set_seconds(GraphOperator& op, double seconds) {
  const double share = op.seconds > 0 ? op.replay_seconds / op.seconds : 1;
  op.seconds = seconds;
  op.replay_seconds = share * seconds;
}

}  // namespace remat
