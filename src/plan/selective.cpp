// The planner `selective`: keeps the results of products, convolutions and attention, drops the others, between
// values that all paths go through: the inputs of blocks. (The choice is that of PyTorch's selective checkpointing; the
// word is from Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models".)
#include "plan/articulation.h"
#include "plan/candidates.h"
#include "plan/planners.h"
#include "util/compute_bound.h"

namespace remat::planners {

Actions selective(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  const auto costly = [](std::string_view name) {
    return is_product(name) || is_convolution(name) || is_attention(name);
  };
  offer_articulation(candidates, graph, results_of(graph, costly));
  return candidates.best();
}

}  // namespace remat::planners
