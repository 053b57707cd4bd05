#include "plan/extrapolation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "plan/other_sizes.h"

namespace remat {
namespace {

constexpr size_t kEnough = 3;  ///< sizes that tell a parabola

class Extrapolator {
 public:
  Extrapolator(const std::map<int64_t, Graph>& known, int64_t size) : size_(size) {
    for (const auto& [each, graph] : known) {
      sizes_.push_back(each);
      graphs_.push_back(&graph);
    }
  }

  Graph run() {
    curved_ = has_curves();
    const Extrapolation at_size(sizes_, size_, curved_);
    const auto bytes = [&](auto get) {
      return std::max<int64_t>(0, std::llround(at_size([&](size_t k) { return get(*graphs_[k]); })));
    };
    const Graph& base = nearest();
    Graph graph = base;
    if (sizes_.size() > 1) {  // else taken not to grow: most of it are parameters
      graph.baseline_bytes = bytes([](const Graph& g) { return g.baseline_bytes; });
      graph.parameter_bytes = std::min(bytes([](const Graph& g) { return g.parameter_bytes; }), graph.baseline_bytes);
      graph.gradient_bytes = std::min(bytes([](const Graph& g) { return g.gradient_bytes; }),
                                      graph.baseline_bytes - graph.parameter_bytes);
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      GraphValue& value = graph.values[v];
      value.bytes = bytes([v](const Graph& g) { return g.values[v].bytes; });
      const bool packable = std::ranges::all_of(graphs_, [v](const Graph* g) { return g->values[v].packed_bytes > 0; });
      const int64_t packed = bytes([v](const Graph& g) { return g.values[v].packed_bytes; });
      value.packed_bytes = packable ? std::clamp<int64_t>(packed, 1, std::max<int64_t>(1, value.bytes)) : 0;
    }
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      graph.operators[o].scratch_bytes = bytes([o](const Graph& g) { return g.operators[o].scratch_bytes; });
    }
    for (size_t e = 0; e < graph.events.size(); ++e) {
      GraphEvent& event = graph.events[e];
      event.delta = std::llround(at_size([&](size_t k) { return graphs_[k]->events[e].delta; }));
      event.rise = std::max(event.delta, bytes([e](const Graph& g) { return g.events[e].rise; }));
      event.reused = bytes([e](const Graph& g) { return g.events[e].reused; });
      limit_reused(event);
    }
    scale_seconds(graph, base);
    return graph;
  }

 private:
  /// Do values' bytes lie on no line? (What kernels allocate for themselves has kinks.)
  bool has_curves() const {
    if (sizes_.size() < kEnough) return false;
    const size_t last = sizes_.size() - 1;
    const Extrapolation line({sizes_[last - 2], sizes_[last - 1]}, sizes_[last], false);
    for (size_t v = 0; v < graphs_[0]->values.size(); ++v) {
      const auto at = [&](size_t k) { return static_cast<double>(graphs_[last - 2 + k]->values[v].bytes); };
      if (at(2) - line(at) > Extrapolation::rounding(at(2))) return true;
    }
    return false;
  }

  const Graph& nearest() const {
    const auto distance = [&](size_t k) {
      return std::abs(std::log(static_cast<double>(sizes_[k]) / static_cast<double>(size_)));
    };
    size_t best = 0;
    for (size_t k = 1; k < sizes_.size(); ++k) {
      if (distance(k) < distance(best)) best = k;
    }
    return *graphs_[best];
  }

  const int64_t size_;
  bool curved_ = false;
  std::vector<int64_t> sizes_;
  std::vector<const Graph*> graphs_;
};

}  // namespace

Extrapolation::Extrapolation(const std::vector<int64_t>& sizes, int64_t size, bool curved)
    : count_(sizes.size()), curved_(curved) {
  // Between known sizes those around tell, not the last.
  const auto around = static_cast<size_t>(std::ranges::lower_bound(sizes, size) - sizes.begin()) + 1;
  count_ = std::clamp(around, std::min(count_, kEnough), count_);
  const auto at = [&](size_t back) { return static_cast<double>(sizes[count_ - 1 - back]); };
  const auto wanted = static_cast<double>(size);
  proportion_ = wanted / at(0);
  ahead_ = wanted - at(0);
  if (count_ > 1) {
    first_ = at(0) - at(1);
    behind_ = wanted - at(1);
  }
  if (count_ > 2) second_ = at(1) - at(2);
}

Graph extrapolate(const std::map<int64_t, Graph>& known, int64_t size) { return Extrapolator(known, size).run(); }

}  // namespace remat
