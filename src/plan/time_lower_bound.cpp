// A lower bound of the seconds that a plan within a budget takes. At each moment, idle values worth the bytes above the
// budget must have been dropped or packed, and each takes seconds to recompute or unpack. To choose them is a knapsack
// problem, relaxed to fractions of values (Dantzig 1957): the most bytes per second first. The bound is the largest
// over the moments. A solver proves tighter ones (bench/oracle.py). Values that a scope's policy drops cost nothing
// here, because they are recomputed under every plan.
#include <algorithm>
#include <limits>
#include <vector>

#include <remat/planner.h>

#include "plan/form_costs.h"
#include "plan/levels.h"
#include "plan/replay_operators.h"
#include "plan/step_machine.h"

namespace remat {
namespace {

constexpr size_t kMostMoments = 256;
constexpr size_t kLongestWalk = 1000;  ///< operators in the price of one value; the others are left out

/// One item of the knapsack: a way to free bytes of a value, and the seconds it costs.
struct Piece {
  int32_t value = 0;
  double bytes = 0, seconds = 0;
};

/// The seconds that the recompute of each value takes at least: those of its producer, and of the producers of inputs
/// that plain does not hold either. Where several values need an operator, its seconds are divided among them by their
/// bytes, so that no set of values pays for it twice.
class RecomputePrices {
 public:
  explicit RecomputePrices(const Graph& graph)
      : graph_(graph),
        operators_(graph),
        used_(graph.values.size(), false),
        held_(initial_states(graph)),
        visited_(graph.operators.size(), -1) {
    for (const GraphEvent& event : graph.events) {
      if (event.kind == GraphEvent::Kind::kUse) used_[event.index] = true;
    }
    std::vector<double> bytes(graph.operators.size(), 0);  // by operator: of all values that need it
    for_each_droppable([&](int32_t v, double own) {
      for (const int32_t o : needed_for(v)) bytes[o] += own;
    });
    drop_.resize(graph.values.size(), 0);
    std::fill(visited_.begin(), visited_.end(), -1);
    for_each_droppable([&](int32_t v, double own) {
      for (const int32_t o : needed_for(v)) drop_[v] += operators_.seconds(o) * own / bytes[o];
    });
  }

  double to_drop(int32_t v) const { return drop_[v]; }

  double to_pack(int32_t v) const {
    const GraphValue& value = graph_.values[v];
    // A replay for another result of the same operator may recompute this value, which need not be unpacked then.
    const bool unpacked = used_[v] && operators_.results(value.producer).size() == 1;
    return (kPackingCosts.out.compute + (unpacked ? kPackingCosts.in.compute : 0)) * static_cast<double>(value.bytes);
  }

 private:
  template <class Visit>
  void for_each_droppable(Visit visit) const {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].droppable && used_[v] && graph_.values[v].bytes > 0)
        visit(static_cast<int32_t>(v), static_cast<double>(graph_.values[v].bytes));
    }
  }

  const std::vector<int32_t>& needed_for(int32_t v) {
    found_.clear();
    missing_.assign(1, v);
    while (!missing_.empty() && found_.size() < kLongestWalk) {
      const int32_t producer = graph_.values[missing_.back()].producer;
      missing_.pop_back();
      if (visited_[producer] == v) continue;
      visited_[producer] = v;
      found_.push_back(producer);
      for (const int32_t input : operators_.inputs(producer)) {
        if (held_[input].memory == ValueState::Memory::kGone) missing_.push_back(input);
      }
    }
    return found_;
  }

  const Graph& graph_;
  const ReplayOperators operators_;
  std::vector<bool> used_;
  const std::vector<ValueState> held_;  ///< kGone: plain frees the value in the forward pass
  std::vector<int32_t> visited_;        ///< operators: the last value that needs them
  std::vector<int32_t> found_, missing_;
  std::vector<double> drop_;
};

/// The cheapest bytes first. Of each value the lower convex hull of its choices: to keep, pack, drop or move it.
std::vector<Piece> pieces_of(const Graph& graph, PlannerOptions options) {
  const Tier* const tier = graph.tier && options.move ? &*graph.tier : nullptr;
  const RecomputePrices prices(graph);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    if (!value.droppable || value.bytes == 0) continue;
    const auto v = static_cast<int32_t>(i);
    const auto bytes = static_cast<double>(value.bytes);
    Piece drop{v, bytes, prices.to_drop(v)};
    // What moving takes of the computation at least: the copies may all find time beside it.
    if (tier != nullptr) drop.seconds = std::min(drop.seconds, tier->costs.out.compute * bytes);
    if (options.pack && value.packed_bytes > 0 && value.packed_bytes < value.bytes) {
      const Piece packed{v, static_cast<double>(value.bytes - value.packed_bytes), prices.to_pack(v)};
      if (packed.seconds * drop.bytes < drop.seconds * packed.bytes) {
        pieces.push_back(packed);
        drop = {v, drop.bytes - packed.bytes, drop.seconds - packed.seconds};
      }
    }
    pieces.push_back(drop);
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.seconds * b.bytes < b.seconds * a.bytes; });
  return pieces;
}

double least_to_free(double bytes, const std::vector<Piece>& pieces, const std::vector<bool>& idle) {
  double seconds = 0;
  for (const Piece& piece : pieces) {
    if (bytes <= 0) return seconds;
    if (!idle[piece.value]) continue;
    seconds += piece.seconds * std::min(1.0, bytes / piece.bytes);
    bytes -= piece.bytes;
  }
  return bytes <= 0 ? seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

double seconds_bound(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  if (budget_bytes < floor_of(graph).peak_bytes) return std::numeric_limits<double>::infinity();
  // Of each stretch of the timeline, the event at which plain holds most.
  const size_t stretch = (graph.events.size() + kMostMoments - 1) / kMostMoments;
  std::vector<size_t> moments;
  std::vector<int64_t> levels;  // by event, rises included, where plans keep every value
  const auto dropped = [](const GraphValue& value) { return value.dropped; };
  for_each_level(graph, dropped, [&](size_t e, int64_t bytes) {
    levels.push_back(bytes);
    if (e % stretch == 0) moments.push_back(e);
    if (levels[e] > levels[moments.back()]) moments.back() = e;
  });
  const std::vector<Piece> pieces = pieces_of(graph, options);
  std::vector<bool> idle(graph.values.size(), false);  // and droppable
  double bound = 0;
  auto next = moments.begin();
  for (size_t e = 0; e < graph.events.size() && next != moments.end(); ++e) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kIdle) idle[event.index] = graph.values[event.index].droppable;
    if (event.kind == GraphEvent::Kind::kUse || event.kind == GraphEvent::Kind::kFree) idle[event.index] = false;
    if (e != *next) continue;
    ++next;
    if (levels[e] > budget_bytes)
      bound = std::max(bound, least_to_free(static_cast<double>(levels[e] - budget_bytes), pieces, idle));
  }
  return bound;
}

}  // namespace remat
