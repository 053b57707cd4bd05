#include "plan/choice.h"

#include <algorithm>
#include <utility>

namespace remat::planners {
namespace {

constexpr size_t kNeighbours = 4;           ///< faster plans tried beyond the end of the bisection
constexpr int64_t kMostReplaysOfEach = 20;  ///< on average; a plan that replays more does not count as fitting

}  // namespace

Choice::Choice(const Graph& graph, int64_t limit, std::vector<bool> evicted)
    : graph_(graph), limit_(limit), evicted_(std::move(evicted)), simulator_(graph) {}

bool Choice::try_out(const Actions& actions) {
  tried_ = actions;
  for (size_t v = 0; v < tried_.size(); ++v) {
    const GraphValue& value = graph_.values[v];
    if (tried_[v] == Action::kPack && value.packed_bytes == 0) tried_[v] = Action::kKeep;
    if (tried_[v] == Action::kMove && !graph_.tier) tried_[v] = Action::kKeep;
    const bool evicted = v < evicted_.size() && evicted_[v] && value.droppable;
    if (evicted && tried_[v].kind == Action::Kind::kKeep) tried_[v] = Action::kRecompute;
  }
  const int64_t most = kMostReplaysOfEach * static_cast<int64_t>(graph_.operators.size() + 50);
  const Simulation run = simulator_.run(tried_, limit_, most);
  if (run.stopped || run.peak_bytes > limit_) return false;
  if (graph_.tier && run.tier_bytes > graph_.tier->bytes) return false;
  if (!fits_ || run.seconds < run_.seconds) {
    std::swap(best_, tried_);
    run_ = run;
  }
  fits_ = true;
  return true;
}

void Choice::offer(const Actions& actions) {
  if (actions.size() == graph_.values.size()) try_out(actions);
}

void Choice::offer(const ParetoFront& front) {
  std::vector<const Actions*> by_peak;
  for (const auto& [peak, point] : front.points()) by_peak.push_back(&point.actions);
  if (by_peak.empty() || by_peak.front()->size() != graph_.values.size()) return;
  if (try_out(*by_peak.back())) return;
  size_t fit = 0, too_large = by_peak.size() - 1;
  while (fit < too_large) {
    const size_t middle = fit + (too_large - fit) / 2;
    if (try_out(*by_peak[middle])) {
      fit = middle + 1;
    } else {
      too_large = middle;
    }
  }
  for (size_t more = too_large + 1; more < std::min(by_peak.size(), too_large + 1 + kNeighbours); ++more) {
    try_out(*by_peak[more]);
  }
}

}  // namespace remat::planners
