#include "plan/moves.h"

#include <algorithm>

#include "plan/candidates.h"

namespace remat::planners {
namespace {

/// Below it, what each copy takes whatever its size is more than its bytes do.

class Moves {
 public:
  Moves(const Graph& graph, const std::vector<bool>& moved)
      : moved_(moved), rest_(graph), away_(graph.values.size(), false) {
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
      const auto value = static_cast<size_t>(rest_.events[e].index);
      const int64_t bytes = rest_.values[value].bytes;
      const bool was_away = away_[value];
      away_[value] = kind == GraphEvent::Kind::kIdle;
      if (kind == GraphEvent::Kind::kIdle) change_before(e, -bytes);
      if (kind == GraphEvent::Kind::kUse && was_away) change_before(e, bytes);
      if (kind == GraphEvent::Kind::kFree && was_away) free_away(e, bytes);
    }
    return std::move(rest_);
  }

 private:
  /// Before what event `e` does itself.
  void change_before(size_t e, int64_t bytes) {
    GraphEvent& event = rest_.events[e - 1];
    event.delta += bytes;
    event.rise = std::max(event.rise, event.delta + event.reused);
  }

  /// The event takes away bytes that have gone before.
  void free_away(size_t e, int64_t bytes) {
    rest_.events[e].delta += bytes;
    rest_.events[e].rise += bytes;
  }

  const std::vector<bool>& moved_;
  Graph rest_;
  std::vector<bool> away_;  ///< by value
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
