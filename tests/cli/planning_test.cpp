#include "cli/planning.h"

#include <gtest/gtest.h>

#include "plan/sample_graph.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

TEST(ReadGraphTest, ReadsWhatToJsonWrites) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(read_graph(directory.write("g.json", to_json(sample_graph()))), sample_graph());
}

TEST(ReadGraphTest, ReadsTheGraphOfARun) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(read_graph(directory.write("r.json", to_json(remat::Run{.graph = sample_graph()}))), sample_graph());
  EXPECT_ERROR(read_graph(directory.write("r.json", R"({"format": "remat-run", "version": 1})")), "[graph] '");
}

TEST(ReadGraphTest, ErrorsNameTheFile) {
  const test::TemporaryDirectory directory;
  EXPECT_ERROR(read_graph("/no/such.json"), "[graph] cannot read '/no/such.json' (No such file or directory); give");
  EXPECT_ERROR(read_graph("/tmp"), "[graph] '/tmp' is a directory; give");
  const auto path = directory.write("g.json", "{\"format\": ");
  EXPECT_ERROR(read_graph(path), "[graph] '" + path + "': no JSON at line 1");
  directory.write("g.json", "");
  EXPECT_ERROR(read_graph(path), "[graph] '" + path + "': ");
  auto plan = make_plan(sample_graph(), 1 << 20);
  directory.write("g.json", to_json(plan));
  EXPECT_ERROR(read_graph(path), "\"remat-plan\", not \"remat-graph\"");
}

TEST(PlainStepTest, IsThePredictionForAPlanThatKeepsAll) {
  const Graph graph = sample_graph();
  const PlainStep plain(graph);
  EXPECT_EQ(plain.baseline_bytes, 464);
  EXPECT_EQ(plain.peak_bytes, make_plan(graph, 1 << 20, "keep-all").predicted_peak_bytes);
  EXPECT_EQ(plain.activation_bytes(), plain.peak_bytes - 464);
  EXPECT_EQ(plain.seconds, 0.5);
}

TEST(PlainStepTest, GivesPercentages) {
  PlainStep plain(sample_graph());
  plain.peak_bytes = 464 + 1000;
  EXPECT_DOUBLE_EQ(*plain.activation_percent(464 + 250), 25);
  EXPECT_DOUBLE_EQ(*plain.activation_percent(464 + 2000), 200);
  EXPECT_DOUBLE_EQ(*plain.extra_percent(0.125), 25);
}

TEST(PlainStepTest, GivesNoPercentagesOfNothing) {
  const PlainStep plain{Graph()};
  EXPECT_EQ(plain.activation_percent(5), std::nullopt);
  EXPECT_EQ(plain.extra_percent(5), std::nullopt);
}

TEST(PlainStepTest, BytesCountEverythingAndPercentWhatIsAboveTheBaseline) {
  PlainStep plain(sample_graph());
  plain.peak_bytes = 464 + 1001;
  EXPECT_EQ(plain.bytes_of(Budget::bytes(700)), 700);
  EXPECT_EQ(plain.bytes_of(Budget::percent(100)), plain.peak_bytes);
  EXPECT_EQ(plain.bytes_of(Budget::percent(50)), 464 + 500);
}

TEST(PlanningTest, CountsActionsOfValuesThatCouldGo) {
  auto graph = sample_graph();  // values 2 and 4 can be dropped, 3 and 4 packed
  EXPECT_EQ(count_choices(graph), 3);
  graph.values.push_back({1, -1, 0, false});
  EXPECT_EQ(count_choices(graph), 3);
  Plan plan;
  plan.actions = {Action::kKeep, Action::kKeep, Action::kRecompute, Action::kPack, Action::kRecomputeEachTime,
                  Action::kKeep};
  auto counts = count_actions(graph, plan);
  EXPECT_EQ(counts.kept, 0);
  EXPECT_EQ(counts.recomputed, 1);
  EXPECT_EQ(counts.held_later, 1);
  EXPECT_EQ(counts.packed, 1);
  plan.actions = std::vector<Action>(6, Action::kKeep);
  counts = count_actions(graph, plan);
  EXPECT_EQ(counts.kept, 3);
  EXPECT_EQ(counts.recomputed + counts.held_later + counts.packed, 0);
}

TEST(TryPlanTest, GivesThePlanAndItsTime) {
  const Graph graph = chain_graph(20);
  const int64_t budget = PlainStep(graph).bytes_of(Budget::percent(60));
  const auto attempt = try_plan(graph, budget, "auto", {});
  ASSERT_TRUE(attempt.plan);
  EXPECT_EQ(*attempt.plan, make_plan(graph, budget));
  EXPECT_EQ(attempt.planner, "auto");
  EXPECT_EQ(attempt.error, nullptr);
  EXPECT_GT(attempt.planning_seconds, 0);
}

TEST(TryPlanTest, PassesOptionsOn) {
  const Graph graph = chain_graph(20);
  const PlainStep plain(graph);
  const auto packed = [&](bool pack) {
    const auto attempt = try_plan(graph, plain.bytes_of(Budget::percent(70)), "auto", {.pack = pack});
    return count_actions(graph, attempt.plan.value()).packed;
  };
  EXPECT_GT(packed(true), 0);
  EXPECT_EQ(packed(false), 0);
}

TEST(TryPlanTest, WhereNothingFitsTheSmallestIsKnown) {
  const Graph graph = chain_graph(20);
  const auto attempt = try_plan(graph, 1, "keep-all", {});
  EXPECT_FALSE(attempt.plan);
  EXPECT_EQ(attempt.smallest_peak_bytes, PlainStep(graph).peak_bytes);
  EXPECT_THROW(std::rethrow_exception(attempt.error), BudgetError);
  EXPECT_GT(attempt.planning_seconds, 0);
}

TEST(TryPlanTest, OtherErrorsAreKept) {
  const auto attempt = try_plan(sample_graph(), 1 << 20, "magic", {});
  EXPECT_FALSE(attempt.plan);
  EXPECT_EQ(attempt.smallest_peak_bytes, std::nullopt);
  EXPECT_TRUE(test::holds(attempt.message, "[plan] there is no planner \"magic\""));
  EXPECT_THROW(std::rethrow_exception(attempt.error), Error);
}

}  // namespace
}  // namespace remat::cli
