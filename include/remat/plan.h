// remat/plan.h -- what becomes of each saved value of a graph: what planners write and sessions follow.
//
// docs/formats.md has the JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// What becomes of a value from the moment when only saved tensors hold it.
enum class Action : uint8_t {
  kKeep,  ///< stays; what a policy drops is dropped all the same
  kDrop,  ///< freed; a replay brings it back for its use, or earlier if one for another value comes by: then it stays
  kDropAgain,  ///< freed; not held when a replay for another value comes by
  kPack,       ///< held packed (values with packed_bytes)
};

struct Plan {
  static constexpr int kVersion = 1;

  std::string planner;               ///< who made it: "auto"
  uint64_t graph_fingerprint = 0;    ///< of the graph that it is for
  int64_t budget_bytes = 0;          ///< that it was made for; baseline included
  int64_t predicted_peak_bytes = 0;  ///< by the simulator; baseline included
  double predicted_seconds = 0;      ///< of replays, packing and unpacking, by the simulator
  std::vector<Action> actions;           ///< one for each value of the graph

  /// Empty if the plan can be followed on `graph`, otherwise what is wrong: another fingerprint or number of actions,
  /// values that cannot be dropped or packed.
  std::string problem(const Graph& graph) const;
  bool is_valid(const Graph& graph) const { return problem(graph).empty(); }

  bool operator==(const Plan&) const = default;
};

/// JSON with the names above, actions as {"drop": [values], ...}; plan_from_json() throws Error on anything that is not a
/// plan of this version. Whether it suits a graph, problem() says.
std::string to_json(const Plan& plan);
Plan plan_from_json(std::string_view text);

}  // namespace remat
