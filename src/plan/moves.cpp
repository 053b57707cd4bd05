#include "plan/moves.h"

#include <algorithm>

#include "plan/candidates.h"
#include "util/move_order.h"

namespace remat::planners {
namespace {

/// Below it, what each copy takes whatever its size is more than its bytes do.
constexpr int64_t kLeastMoved = int64_t{64} << 10;

class Moves {
 public:
  Moves(const Graph& graph, const std::vector<bool>& moved)
      : moved_(moved), rest_(graph), in_tier_(graph.values.size(), false) {
    rest_.tier.reset();
    for (size_t v = 0; v < moved.size(); ++v) {
      if (!moved[v]) continue;
      rest_.values[v].droppable = false;
      rest_.values[v].packed_bytes = 0;
    }
  }

  Graph run() {
    for (size_t e = 1; e < rest_.events.size(); ++e) {
      const GraphEvent::Kind kind = rest_.events[e].kind;
      const bool of_value =
          kind == GraphEvent::Kind::kIdle || kind == GraphEvent::Kind::kUse || kind == GraphEvent::Kind::kFree;
      if (!of_value || !moved_[static_cast<size_t>(rest_.events[e].index)]) continue;
      const auto value = static_cast<uint32_t>(rest_.events[e].index);
      if (kind == GraphEvent::Kind::kIdle) become_idle(e, value);
      if (kind == GraphEvent::Kind::kUse) use(e, value);
      if (kind == GraphEvent::Kind::kFree && order_.take(value) == MoveOrder::Place::kAway) free_away(e, value);
    }
    return std::move(rest_);
  }

 private:
  int64_t bytes(uint32_t value) const { return rest_.values[value].bytes; }

  /// Before what event `e` does itself.
  void change_before(size_t e, int64_t bytes) {
    GraphEvent& event = rest_.events[e - 1];
    event.delta += bytes;
    event.rise = std::max(event.rise, event.delta + event.reused);
  }

  void become_idle(size_t e, uint32_t value) {
    if (in_tier_[value]) {
      order_.leave_at_once(value);
      change_before(e, -bytes(value));
      return;
    }
    in_tier_[value] = true;
    order_.leave(value);
    while (const auto gone = order_.oldest_gone()) change_before(e, -bytes(*gone));
  }

  void use(size_t e, uint32_t value) {
    if (order_.take(value) == MoveOrder::Place::kAway) change_before(e, bytes(value));
  }

  /// The event takes away bytes that have gone before.
  void free_away(size_t e, uint32_t value) {
    rest_.events[e].delta += bytes(value);
    rest_.events[e].rise += bytes(value);
  }

  const std::vector<bool>& moved_;
  Graph rest_;
  MoveOrder order_;
  std::vector<bool> in_tier_;
};

}  // namespace

Graph graph_beside_moves(const Graph& graph, const std::vector<bool>& moved) { return Moves(graph, moved).run(); }

std::vector<int32_t> worth_moving(const Graph& graph) {
  const std::vector<double> seconds = recompute_seconds(graph);
  std::vector<int32_t> values;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].droppable && graph.values[v].bytes >= kLeastMoved) values.push_back(static_cast<int32_t>(v));
  }
  const auto per_byte = [&](int32_t v) {
    return seconds[static_cast<size_t>(v)] / static_cast<double>(graph.values[static_cast<size_t>(v)].bytes);
  };
  std::ranges::stable_sort(values, std::ranges::greater(), per_byte);
  return values;
}

}  // namespace remat::planners
