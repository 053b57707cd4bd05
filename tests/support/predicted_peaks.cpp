#include "support/predicted_peaks.h"

#include <random>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "support/actions.h"

namespace remat::test {
namespace {

/// Recomputes, packs or keeps each value, `share` of them of 100 not kept.
std::vector<Action> some_actions(const Graph& graph, int share, std::mt19937& random) {
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (!value.returns() || static_cast<int>(random() % 100) >= share) continue;
    const bool packs = value.packed_bytes > 0 && random() % 2 == 0;
    actions[v] = packs ? Action::kPack : random_recompute(random);
  }
  return actions;
}

}  // namespace

void expect_predicted_peaks(const std::function<void(Session&)>& train, const std::string& what) {
  Session recorded;
  train(recorded);
  const Graph graph = recorded.graph();
  std::mt19937 random(11);
  for (const int share : {0, 30, 70, 100}) {
    Plan plan{
        .planner = "random", .graph_fingerprint = graph.fingerprint(), .actions = some_actions(graph, share, random)};
    ASSERT_EQ(plan.problem(graph), "");
    Session session({.planner = "online", .plan = plan});
    for (int step = 0; step < 2; ++step) train(session);
    const StepReport& report = session.report();
    EXPECT_EQ(report.peak_bytes, report.planned_peak_bytes) << what << ", " << share << " % not kept";
    EXPECT_EQ(session.graph().fingerprint(), plan.graph_fingerprint) << what << ", " << share << " % not kept";
  }
}

}  // namespace remat::test
