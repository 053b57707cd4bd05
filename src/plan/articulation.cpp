// The planners of the package gradient-checkpointing (Salimans and Bulatov 2018): `articulation-memory` keeps
// articulation points, `articulation-speed` keeps the results of matrix products and convolutions.
#include <algorithm>
#include <cmath>

#include "plan/articulation.h"
#include "plan/candidates.h"
#include "plan/planners.h"
#include "util/compute_bound.h"

namespace remat::planners {
namespace {

/// Operators and values that they make, as nodes of one undirected graph: operators first, then values.
class Links {
 public:
  explicit Links(const Graph& graph) : operators_(static_cast<int32_t>(graph.operators.size())) {
    const size_t nodes = graph.operators.size() + graph.values.size();
    first_.assign(nodes + 1, 0);
    const auto for_each_link = [&](auto&& link) {
      for (int32_t o = 0; o < operators_; ++o) {
        for (const int32_t v : graph.operators[o].inputs) {
          if (graph.values[v].producer >= 0) link(o, operators_ + v);
        }
        for (const int32_t v : graph.operators[o].results) link(o, operators_ + v);
      }
    };
    for_each_link([&](int32_t a, int32_t b) { ++first_[a + 1], ++first_[b + 1]; });
    for (size_t n = 0; n < nodes; ++n) first_[n + 1] += first_[n];
    others_.resize(first_.back());
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    for_each_link([&](int32_t a, int32_t b) {
      others_[next[a]++] = b;
      others_[next[b]++] = a;
    });
  }

  size_t nodes() const { return first_.size() - 1; }
  size_t begin(int32_t node) const { return first_[node]; }
  size_t end(int32_t node) const { return first_[node + 1]; }
  int32_t other(size_t link) const { return others_[link]; }

 private:
  const int32_t operators_;
  std::vector<size_t> first_;
  std::vector<int32_t> others_;
};

/// The last operator that reads a result of another: usually the loss.
int32_t last_operator(const Graph& graph) {
  for (auto o = static_cast<int32_t>(graph.operators.size()); o-- > 0;) {
    for (const int32_t v : graph.operators[o].inputs) {
      if (graph.values[v].producer >= 0) return o;
    }
  }
  return -1;
}

}  // namespace

std::vector<bool> results_of(const Graph& graph, bool (*compute_bound)(std::string_view name)) {
  std::vector<bool> results(graph.values.size(), false);
  for (const GraphOperator& op : graph.operators) {
    bool is_result = compute_bound(op.name);
    for (const int32_t input : op.overwritten) is_result = is_result || results[input];
    if (!is_result) continue;
    for (const int32_t made : op.results) results[made] = true;
  }
  return results;
}

std::vector<int32_t> articulation_values(const Graph& graph) {
  const int32_t root = last_operator(graph);
  std::vector<int32_t> found;
  if (root < 0) return found;
  const Links links(graph);
  const auto operators = static_cast<int32_t>(graph.operators.size());
  std::vector<int32_t> time(links.nodes(), -1), low(links.nodes(), 0);  // -1: not visited yet
  std::vector<size_t> next(links.nodes());
  std::vector<int32_t> path = {root};
  int32_t now = 0;
  const auto visit = [&](int32_t node) {
    time[node] = low[node] = now++;
    next[node] = links.begin(node);
  };
  visit(root);
  while (!path.empty()) {
    const int32_t node = path.back();
    if (next[node] < links.end(node)) {
      const int32_t other = links.other(next[node]++);
      if (time[other] >= 0) {
        low[node] = std::min(low[node], time[other]);
      } else {
        visit(other);
        path.push_back(other);
      }
      continue;
    }
    path.pop_back();
    if (path.empty()) break;
    const int32_t parent = path.back();
    low[parent] = std::min(low[parent], low[node]);
    // `parent` is a value that separates `node` and its descendants from the root. It counts where its producer is
    // among them: then everything that the producer was made from reaches the root through this value alone.
    if (parent < operators || low[node] < time[parent]) continue;
    const int32_t value = parent - operators;
    if (time[graph.values[value].producer] >= time[node]) found.push_back(value);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void offer_articulation(Candidates& candidates, const Graph& graph, const std::vector<bool>& also) {
  std::vector<int32_t> points = articulation_values(graph);
  std::erase_if(points, [&](int32_t v) { return !graph.values[v].droppable; });
  const size_t count = points.size();
  for (size_t step = 1; step <= count + 1 && !candidates.exhausted();) {
    std::vector<bool> kept = also;
    for (size_t i = step - 1; i < count; i += step) kept[points[i]] = true;
    candidates.offer(only_kept(graph, kept));
    // Values behind the last of them are used first in the backward pass: dropping them frees little.
    const size_t last = count / step;
    if (last > 0) std::fill(kept.begin() + points[last * step - 1], kept.end(), true);
    if (last > 0) candidates.offer(only_kept(graph, kept));
    step = last > 0 ? count / last + 1 : count + 2;
  }
}

Actions articulation_memory(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  offer_articulation(candidates, graph, std::vector<bool>(graph.values.size(), false));
  return candidates.best();
}

Actions articulation_speed(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  const auto compute_bound = [](std::string_view name) { return is_product(name) || is_convolution(name); };
  candidates.offer(only_kept(graph, results_of(graph, compute_bound)));
  return candidates.best();
}

}  // namespace remat::planners
