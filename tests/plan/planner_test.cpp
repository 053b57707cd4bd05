#include <remat/planner.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "plan/greedy.h"
#include "plan/simulate.h"
#include "random_graph.h"
#include "sample_graph.h"

namespace remat::test {
namespace {

int64_t plain_peak(const Graph& graph) {
  return predict(graph, std::vector<Fate>(graph.values.size(), Fate::kKeep)).peak_bytes;
}

/// Every choice there is, tried out. For graphs with a handful of droppable values.
class BruteForce {
 public:
  explicit BruteForce(const Graph& graph) : graph_(graph), simulator_(graph), fates_(graph.values.size(), Fate::kKeep) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].droppable) droppable_.push_back(v);
    }
    look(0);
  }
  size_t choices() const { return droppable_.size(); }
  /// The least seconds within `budget`; infinite if nothing fits.
  double least_seconds(int64_t budget) const {
    double least = INFINITY;
    for (const auto& [peak, seconds] : found_) {
      if (peak <= budget) least = std::min(least, seconds);
    }
    return least;
  }
  int64_t lowest_peak() const { return found_.begin()->first; }

 private:
  void look(size_t next) {
    if (next == droppable_.size()) {
      const Simulation run = simulator_.run(fates_);
      auto& seconds = found_.try_emplace(run.peak_bytes, run.seconds).first->second;
      seconds = std::min(seconds, run.seconds);
      return;
    }
    for (const Fate fate : {Fate::kKeep, Fate::kDrop, Fate::kDropAgain, Fate::kPack}) {
      if (fate == Fate::kPack && graph_.values[droppable_[next]].packed_bytes == 0) continue;
      fates_[droppable_[next]] = fate;
      look(next + 1);
    }
  }

  const Graph& graph_;
  Simulator simulator_;
  std::vector<Fate> fates_;
  std::vector<size_t> droppable_;
  std::map<int64_t, double> found_;
};

TEST(Auto, FindsTheOptimumOfSmallGraphs) {
  int optimal = 0, plans = 0;
  double planned = 0, least = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Graph graph = RandomGraph(seed).make(8);
    const BruteForce all(graph);
    if (all.choices() > 7) continue;
    const int64_t top = plain_peak(graph);
    for (int part = 0; part <= 10; ++part) {
      const int64_t budget = all.lowest_peak() + (top - all.lowest_peak()) * part / 10;
      ++plans;
      Plan plan;
      try {
        plan = make_plan(graph, budget);
      } catch (const BudgetError& error) {  // the very lowest peak may be missed, by little
        EXPECT_EQ(part, 0) << seed;
        EXPECT_LE(*error.smallest_known_bytes(), budget + budget / 50);
        continue;
      }
      EXPECT_LE(plan.predicted_peak_bytes, budget);
      EXPECT_TRUE(plan.is_valid(graph)) << plan.problem(graph);
      optimal += plan.predicted_seconds <= all.least_seconds(budget) + 1e-9 ? 1 : 0;
      planned += plan.predicted_seconds;
      least += all.least_seconds(budget);
    }
    EXPECT_THROW(make_plan(graph, all.lowest_peak() - 1), BudgetError) << seed;
  }
  EXPECT_GT(plans, 300);
  EXPECT_GE(optimal, plans * 98 / 100) << plans;
  EXPECT_LE(planned, 1.001 * least);
}

TEST(Auto, MoreBudgetIsNeverSlowerLessNeverPeaksHigher) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Graph graph = RandomGraph(seed).make(40);
    const int64_t top = plain_peak(graph);
    double seconds = 0;
    int64_t peak = top;
    for (int i = 50; i > 0; --i) {
      const int64_t budget = graph.baseline_bytes + (top - graph.baseline_bytes) * i / 50;
      try {
        const Plan plan = make_plan(graph, budget);
        EXPECT_LE(plan.predicted_peak_bytes, std::min(peak, budget));
        EXPECT_GE(plan.predicted_seconds, seconds);
        peak = plan.predicted_peak_bytes;
        seconds = plan.predicted_seconds;
      } catch (const BudgetError&) {
        break;
      }
    }
    EXPECT_LT(peak, top);
  }
}

TEST(Auto, GivesTheSamePlanByteForByte) {
  const Graph graph = RandomGraph(3).make(60);
  const int64_t budget = plain_peak(graph) * 7 / 10;
  const std::string first = to_json(make_plan(graph, budget));
  EXPECT_EQ(to_json(make_plan(graph, budget)), first);
  EXPECT_EQ(to_json(make_plan(graph_from_json(to_json(graph)), budget)), first);
}

TEST(Auto, CountsWhatIsGoneWhenItIsNeeded) {
  // Two results that cost a pass over a product's. One product is alive until backward needs the pass again, the other
  // is freed in the forward pass, so that what looks as cheap costs 100 times as much.
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.step_seconds = 1;
  graph.values = {{100, -1}};
  const auto run = [&](int32_t input, double seconds, bool droppable) {
    const auto index = static_cast<int32_t>(graph.operators.size());
    const auto made = static_cast<int32_t>(graph.values.size());
    graph.values.push_back({100, index, 0, droppable});
    graph.operators.push_back({"aten::op", seconds, seconds, 0, {input}, {}, {made}});
    graph.events.push_back({Kind::kOperator, index, 100, 100});
    return made;
  };
  const int32_t freed_product = run(0, 0.1, false);
  const int32_t dear = run(freed_product, 0.001, true);
  graph.events.push_back({Kind::kIdle, dear, 0, 0});
  graph.events.push_back({Kind::kIdle, freed_product, 0, 0});
  graph.events.push_back({Kind::kFree, freed_product, 0, 0});
  const int32_t held_product = run(0, 0.1, false);
  const int32_t cheap = run(held_product, 0.001, true);
  graph.events.push_back({Kind::kIdle, held_product, 0, 0});
  graph.events.push_back({Kind::kIdle, cheap, 0, 0});
  graph.events.push_back({Kind::kOther, -1, 150, 0});  // the peak, when all of it is put away
  for (const int32_t v : {cheap, held_product, dear}) {
    graph.events.push_back({Kind::kUse, v, 0, 0});
    graph.events.push_back({Kind::kFree, v, 0, 0});
  }
  ASSERT_EQ(graph.problem(), "");
  Simulator simulator(graph);
  planners::Fates fates(graph.values.size(), Fate::kKeep);
  planners::Greedy(graph, simulator, {}).descend(fates, plain_peak(graph) - 100);
  EXPECT_EQ(fates[static_cast<size_t>(cheap)], Fate::kDrop);
  EXPECT_EQ(fates[static_cast<size_t>(dear)], Fate::kKeep);
}

TEST(Auto, PacksOnlyWhereAllowed) {
  Graph graph = chain_graph(30);
  for (auto& op : graph.operators) op.replay_seconds = 1e-3;
  const int64_t budget = plain_peak(graph) * 98 / 100;
  const auto packs = [](const Plan& plan) { return std::count(plan.fates.begin(), plan.fates.end(), Fate::kPack); };
  EXPECT_GT(packs(make_plan(graph, budget)), 0);
  EXPECT_EQ(packs(make_plan(graph, budget, "auto", {.pack = false})), 0);
}

TEST(Auto, KeepsEverythingWhereThereIsRoom) {
  const Graph graph = RandomGraph(1).make(30);
  const Plan plan = make_plan(graph, plain_peak(graph));
  EXPECT_EQ(plan.fates, std::vector<Fate>(graph.values.size(), Fate::kKeep));
  EXPECT_EQ(plan.predicted_seconds, 0);
  EXPECT_EQ(plan.predicted_peak_bytes, plain_peak(graph));
}

TEST(Planner, NothingToDropIsNoTrouble) {
  Graph graph;
  graph.baseline_bytes = 10;
  EXPECT_EQ(make_plan(graph, 10).predicted_peak_bytes, 10);
  EXPECT_THROW(make_plan(graph, 9), BudgetError);
}

TEST(Planner, RefusesWithTheSmallestBudgetThatItKnows) {
  const Graph graph = RandomGraph(2).make(30);
  try {
    make_plan(graph, 1);
    FAIL();
  } catch (const BudgetError& error) {
    ASSERT_TRUE(error.smallest_known_bytes());
    EXPECT_LE(make_plan(graph, *error.smallest_known_bytes()).predicted_peak_bytes, *error.smallest_known_bytes());
    EXPECT_LE(error.lower_bound_bytes(), *error.smallest_known_bytes());
    EXPECT_NE(std::string(error.what()).find(std::to_string(*error.smallest_known_bytes())), std::string::npos);
  }
}

TEST(Planner, RefusesUnknownNamesAndBadGraphs) {
  Graph graph = sample_graph();
  const auto message = [&](std::string_view planner) {
    try {
      make_plan(graph, 1 << 20, planner);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("auto"), "");
  EXPECT_EQ(message("best"), "[plan] there is no planner \"best\"; there are auto, keep-all, drop-all");
  graph.values[0].bytes = -1;
  EXPECT_EQ(message("auto"), "[plan] the graph is not sound: value 0 has bytes -1; record it again");
}

TEST(Planner, PredictionsRefuseFatesThatDoNotSuitAndBadGraphs) {
  Graph graph = sample_graph();
  const auto message = [&](const std::vector<Fate>& fates) {
    try {
      predict(graph, fates);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::vector<Fate> fates(graph.values.size(), Fate::kKeep);
  EXPECT_EQ(message(fates), "");
  EXPECT_NE(message({}).find("the plan has 0 fates"), std::string::npos) << message({});
  fates[0] = Fate::kDrop;  // a leaf
  EXPECT_NE(message(fates).find("value 0 is to be dropped"), std::string::npos) << message(fates);
  fates[0] = Fate::kKeep;
  graph.events.front().index = 1 << 30;
  EXPECT_NE(message(fates).find("the graph is not sound"), std::string::npos) << message(fates);
}

TEST(Planner, EveryPlannerInTheListPlans) {
  const Graph graph = RandomGraph(4).make(20);
  for (const PlannerInfo& info : list_planners()) {
    const Plan plan = make_plan(graph, 2 * plain_peak(graph), info.name);
    EXPECT_EQ(plan.planner, info.name);
    EXPECT_TRUE(plan.is_valid(graph)) << plan.problem(graph);
    EXPECT_FALSE(info.description.empty());
  }
}

}  // namespace
}  // namespace remat::test
