// The planner `selective`: keeps the results of matrix products, convolutions and fused attention, and articulation
// points, which are the inputs of blocks; drops the others. (PyTorch's selective activation checkpointing makes the
// same choice. The word is from Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
// Models".)
#include "plan/articulation.h"
#include "plan/candidates.h"
#include "plan/planners.h"
#include "util/compute_bound.h"

namespace remat::planners {

Actions selective(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  const auto compute_bound = [](std::string_view name) {
    return is_product(name) || is_convolution(name) || is_attention(name);
  };
  offer_articulation(candidates, graph, results_of(graph, compute_bound));
  return candidates.best();
}

}  // namespace remat::planners
