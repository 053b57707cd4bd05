// src/plan/moves.h -- plans that move values beside what other plans do.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat::planners {

/// The step that moves the values in `moved`, by value, as a graph for planners of the rest: they are kept in it, and
/// their bytes go and come as where memory is short: gone at once, and back when they are asked for (move_order.h). A
/// replay reads them wherever they are: only the simulation of the whole plan tells what that takes.
Graph graph_beside_moves(const Graph& graph, const std::vector<bool>& moved);

/// Values that may be moved and are large enough for that, those that take the most seconds per byte to recompute
/// first.
std::vector<int32_t> worth_moving(const Graph& graph);

}  // namespace remat::planners
