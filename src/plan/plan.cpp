#include <remat/plan.h>

#include "plan/json.h"

namespace remat {

std::string Plan::problem(const Graph& graph) const {
  if (const uint64_t actual = graph.fingerprint(); graph_fingerprint != actual)
    return "the plan is for the graph with fingerprint " + hexadecimal(graph_fingerprint) + ", this graph has " +
           hexadecimal(actual);
  if (actions.size() != graph.values.size())
    return "the plan has " + std::to_string(actions.size()) + " actions, the graph has " +
           std::to_string(graph.values.size()) + " values";
  for (size_t v = 0; v < actions.size(); ++v) {
    const auto wrong = [v](const std::string& why) { return "value " + std::to_string(v) + " " + why; };
    switch (actions[v]) {
      case Action::kKeep:
        continue;
      case Action::kDrop:
        if (!graph.values[v].droppable) return wrong("is to be dropped, but the graph says that it is not droppable");
        continue;
      case Action::kDropAgain:
        if (!graph.values[v].returns()) return wrong("is to be dropped, but the graph says that it is not droppable");
        continue;
      case Action::kPack:
        if (graph.values[v].packed_bytes <= 0)
          return wrong("is to be packed, but the graph gives it packed_bytes " +
                       std::to_string(graph.values[v].packed_bytes));
        continue;
    }
    return wrong("has the unknown action " + std::to_string(static_cast<int>(actions[v])));
  }
  return {};
}

}  // namespace remat
