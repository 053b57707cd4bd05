#include "support/predicted_peaks.h"

#include <random>

#include <gtest/gtest.h>

#include <remat/planner.h>

namespace remat::test {
namespace {

/// Drops, packs or keeps each value, `share` of them of 100 not kept; what a policy drops is dropped again.
std::vector<Action> random_actions(const Graph& graph, int share, std::mt19937& random) {
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (!value.returns() || static_cast<int>(random() % 100) >= share) continue;
    const bool packs = value.packed_bytes > 0 && random() % 2 == 0;
    actions[v] = packs ? Action::kPack : random() % 8 == 0 ? Action::kDropAgain : Action::kDrop;
    if (value.dropped) actions[v] = random() % 3 == 0 ? Action::kDropAgain : Action::kKeep;
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
        .planner = "random", .graph_fingerprint = graph.fingerprint(), .actions = random_actions(graph, share, random)};
    ASSERT_EQ(plan.problem(graph), "");
    Session session({.planner = "online", .plan = plan});
    for (int step = 0; step < 2; ++step) train(session);
    const StepReport& report = session.report();
    EXPECT_EQ(report.peak_bytes, report.planned_peak_bytes) << what << ", " << share << " % not kept";
    EXPECT_EQ(session.graph().fingerprint(), plan.graph_fingerprint) << what << ", " << share << " % not kept";
  }
}

}  // namespace remat::test
