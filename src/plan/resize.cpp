#include "plan/resize.h"

#include <algorithm>
#include <cmath>

#include "plan/other_sizes.h"

namespace remat {
namespace {

constexpr double kSumWeight = 10;       ///< of the condition that the weights add up to 1
constexpr double kSquareWeight = 0.01;  ///< of the conditions on squares of bytes
constexpr double kRidge = 1e-13;        ///< regularization: of equally good weights, the smallest
constexpr double kExact = 1e-3;         ///< the largest error of an exact prediction, as a share of a value's bytes
constexpr double kMostWeight = 10;      ///< larger weights would amplify small differences
constexpr size_t kEnoughKnown = 3;      ///< known graphs that tell which bytes grow with the square of a length

double median(std::vector<double>& numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

/// A weighted least-squares problem, solved by its normal equations, of which there are as many as weights.
class Weights {
 public:
  explicit Weights(size_t count) : count_(count), rows_(count * count, 0), right_(count, 0), row_(count) {}

  template <class At>
  void add(At at, double wanted, double weight) {
    for (size_t k = 0; k < count_; ++k) row_[k] = weight * at(k);
    wanted *= weight;
    for (size_t i = 0; i < count_; ++i) {
      for (size_t j = 0; j < count_; ++j) rows_[i * count_ + j] += row_[i] * row_[j];
      right_[i] += row_[i] * wanted;
    }
  }

  std::vector<double> solve() {
    double trace = 0;
    for (size_t i = 0; i < count_; ++i) trace += rows_[i * count_ + i];
    for (size_t i = 0; i < count_; ++i) {
      rows_[i * count_ + i] += kRidge * trace;
      right_[i] += kRidge * trace / static_cast<double>(count_);
    }
    // Positive definite: no pivoting is needed.
    for (size_t i = 0; i < count_; ++i) {
      for (size_t below = i + 1; below < count_; ++below) {
        const double factor = rows_[below * count_ + i] / rows_[i * count_ + i];
        for (size_t j = i; j < count_; ++j) rows_[below * count_ + j] -= factor * rows_[i * count_ + j];
        right_[below] -= factor * right_[i];
      }
    }
    for (size_t i = count_; i-- > 0;) {
      for (size_t j = i + 1; j < count_; ++j) right_[i] -= rows_[i * count_ + j] * right_[j];
      right_[i] /= rows_[i * count_ + i];
    }
    return right_;
  }

 private:
  const size_t count_;
  std::vector<double> rows_, right_, row_;
};

class Resizer {
 public:
  Resizer(const std::vector<const Graph*>& known, const std::vector<int64_t>& seen) : known_(known), seen_(seen) {}

  Resized run() {
    weigh();
    Resized result;
    result.graph = *known_[base_];
    result.exact = known_.size() >= kEnoughKnown && error_ <= kExact;
    fill(result.graph);
    return result;
  }

 private:
  int64_t bytes_of(size_t k, size_t v) const { return known_[k]->values[v].bytes; }
  bool is_seen(size_t v) const { return v < seen_.size() && seen_[v] >= 0; }

  void weigh() {
    const size_t values = known_.front()->values.size();
    Weights conditions(known_.size());
    conditions.add([](size_t) { return 1.0; }, 1, kSumWeight);
    std::vector<double> distances(known_.size(), 0);
    std::vector<std::vector<double>> growths(known_.size());
    for (size_t v = 0; v < values; ++v) {
      if (!is_seen(v)) continue;
      int64_t most = seen_[v];
      for (size_t k = 0; k < known_.size(); ++k) most = std::max(most, bytes_of(k, v));
      if (most == 0) continue;
      const double unit = 1 / static_cast<double>(most);
      const double wanted = unit * static_cast<double>(seen_[v]);
      const auto at = [&](size_t k) { return unit * static_cast<double>(bytes_of(k, v)); };
      conditions.add(at, wanted, 1);
      conditions.add([&](size_t k) { return at(k) * at(k); }, wanted * wanted, kSquareWeight);
      for (size_t k = 0; k < known_.size(); ++k) {
        distances[k] += std::abs(at(k) - wanted);
        if (at(k) > 0) growths[k].push_back(wanted / at(k));
      }
    }
    base_ = static_cast<size_t>(std::min_element(distances.begin(), distances.end()) - distances.begin());
    if (known_.size() > 1) weights_ = conditions.solve();
    // One known graph does not tell which bytes grow: all bytes grow by the same factor, and none shrink.
    if (known_.size() == 1 || !are_sound()) {
      weights_.assign(known_.size(), 0);
      weights_[base_] = std::max(1.0, median(growths[base_]));
    }
    for (size_t v = 0; v < values; ++v) {
      if (!is_seen(v)) continue;
      const double difference =
          std::abs(weighted([&](const Graph& g) { return g.values[v].bytes; }) - static_cast<double>(seen_[v]));
      error_ = std::max(error_, difference / std::max(1.0, static_cast<double>(seen_[v])));
    }
  }

  bool are_sound() const {
    return std::ranges::all_of(weights_, [](double w) { return std::isfinite(w) && std::abs(w) <= kMostWeight; });
  }

  template <class Get>
  double weighted(Get get) const {
    double sum = 0;
    for (size_t k = 0; k < known_.size(); ++k) sum += weights_[k] * static_cast<double>(get(*known_[k]));
    return sum;
  }
  template <class Get>
  int64_t bytes(Get get) const {
    return std::llround(weighted(get));
  }

  void fill(Graph& graph) const {
    const Graph& base = *known_[base_];
    graph.baseline_bytes = known_.front()->baseline_bytes;
    graph.parameter_bytes = std::min(graph.parameter_bytes, graph.baseline_bytes);
    graph.gradient_bytes = std::min(graph.gradient_bytes, graph.baseline_bytes - graph.parameter_bytes);
    std::vector<int64_t> predicted(graph.values.size());
    for (size_t v = 0; v < graph.values.size(); ++v) {
      GraphValue& value = graph.values[v];
      predicted[v] = std::max<int64_t>(0, bytes([v](const Graph& g) { return g.values[v].bytes; }));
      value.bytes = is_seen(v) ? seen_[v] : predicted[v];
      const bool packable = std::ranges::all_of(known_, [v](const Graph* g) { return g->values[v].packed_bytes > 0; });
      const int64_t packed = bytes([v](const Graph& g) { return g.values[v].packed_bytes; });
      value.packed_bytes = packable ? std::clamp<int64_t>(packed, 1, std::max<int64_t>(1, value.bytes)) : 0;
    }
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      graph.operators[o].scratch_bytes =
          std::max<int64_t>(0, bytes([o](const Graph& g) { return g.operators[o].scratch_bytes; }));
    }
    scale_seconds(graph, base);
    for (size_t e = 0; e < graph.events.size(); ++e) {
      GraphEvent& event = graph.events[e];
      event.delta = bytes([e](const Graph& g) { return g.events[e].delta; });
      event.rise = std::max({event.delta, int64_t{0}, bytes([e](const Graph& g) { return g.events[e].rise; })});
      event.reused = std::max<int64_t>(0, bytes([e](const Graph& g) { return g.events[e].reused; }));
      limit_reused(event);
    }
    move_differences(graph, predicted);
  }

  /// Where a value is larger than predicted, plain's memory rose more while its operator ran. (Values without a free
  /// event are not saved, and plain frees them soon.)
  void move_differences(Graph& graph, const std::vector<int64_t>& predicted) const {
    std::vector<bool> freed(graph.values.size(), false);
    std::vector<size_t> made(graph.operators.size(), 0);
    for (size_t e = 0; e < graph.events.size(); ++e) {
      const GraphEvent& event = graph.events[e];
      if (event.kind == GraphEvent::Kind::kFree) freed[static_cast<size_t>(event.index)] = true;
      if (event.kind == GraphEvent::Kind::kOperator) made[static_cast<size_t>(event.index)] = e;
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const int64_t more = graph.values[v].bytes - predicted[v];
      const int32_t producer = graph.values[v].producer;
      if (more == 0 || producer < 0 || !freed[v]) continue;
      const size_t event = made[static_cast<size_t>(producer)];
      if (event == 0) continue;
      GraphEvent& before = graph.events[event - 1];
      before.delta += more;
      before.rise = std::max<int64_t>({0, before.rise + more, before.delta});
      limit_reused(before);
    }
  }

  const std::vector<const Graph*>& known_;
  const std::vector<int64_t>& seen_;
  std::vector<double> weights_;
  size_t base_ = 0;   ///< the known graph with the nearest sizes
  double error_ = 0;  ///< the largest error in `seen`, as a share of the bytes
};

}  // namespace

uint64_t structure_of(const Graph& graph) {
  Graph sizeless = graph;
  for (GraphValue& value : sizeless.values) value.bytes = 0;
  return sizeless.fingerprint();
}

Resized resize(const std::vector<const Graph*>& known, const std::vector<int64_t>& seen) {
  return Resizer(known, seen).run();
}

}  // namespace remat
