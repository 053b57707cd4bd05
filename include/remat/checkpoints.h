// remat/checkpoints.h -- plans that no budget asked for: so many checkpoints, or none at all. The textbook's way, to
// compare planners with.
//
// Pure functions of a graph, as those of remat/planner.h; predict() tells what their actions take. Each throws Error if
// the graph is not sound.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

/// What crosses the checkpoints is kept. All else is dropped, but for what is made behind the last one: backward begins
/// there, so dropping it frees nothing.
struct Checkpoints {
  std::vector<int32_t> places;  ///< ascending: the operators that they stand before
  std::vector<Action> actions;  ///< one for each value of the graph
};

/// The most checkpoints that a graph has places for.
int64_t most_checkpoints(const Graph& graph);

/// `count` of them, or as many as there are places for, at least 0. Placed so that the segments between them have about
/// the same bytes or the same seconds: whichever has the lower peak.
Checkpoints place_checkpoints(const Graph& graph, int64_t count);

/// The number, from 1 to most_checkpoints(), and the places with the lowest peak; of equal ones, the fewest. No more
/// are tried than four times the square root of the number of operators: beyond, checkpoints outweigh segments.
Checkpoints best_checkpoints(const Graph& graph);

/// Nothing is kept: each value is recomputed from the step's inputs whenever it is needed. In a chain, the memory of
/// one operator and time that grows with the square of the length.
std::vector<Action> recompute_all(const Graph& graph);

}  // namespace remat
