#include "export/costs.h"

#include <set>

#include <gtest/gtest.h>

#include "export/cost_table.h"
#include "export/step_sample.h"

namespace remat::exporting {
namespace {

TEST(Costs, CountTheTilesOfAProduct) {
  StepOperator op;
  op.kernel = "matmul";
  op.arguments = {{"b", {1}}, {"m", {9}}, {"k", {10}}, {"n", {6}}};
  op.results = {0, -1};
  const Work work = work_of(op);
  const auto count = [&](const std::string& row) {
    for (const auto& [name, number] : work)
      if (name == row) return number;
    return 0.0;
  };
  EXPECT_EQ(count("tile.k"), 2 * 1 * 10);        // 8 x 4 of 9 x 6
  EXPECT_EQ(count("row4.k"), (2 * 2 + 1) * 10);  // 8 x 2 and 1 x 4
  EXPECT_EQ(count("single.k"), 2 * 10);          // 1 x 2
  EXPECT_EQ(count("result"), 54);
}

TEST(Costs, TheTableHasEachRowOnceAndWhatAStepNeeds) {
  std::set<std::string_view> rows;
  for (const auto& [row, cost] : kCostTable) {
    EXPECT_TRUE(rows.insert(row).second) << row;
    EXPECT_GE(cost, 0);
  }
  for (const StepOperator& op : chain_step(2, 6).operators)
    for (const auto& [row, count] : work_of(op, "sgd")) EXPECT_TRUE(rows.contains(row)) << row;
}

TEST(Costs, RecomputeOfMoreCostsMore) {
  double before = 0;
  for (const int64_t width : {4, 9, 16, 33, 64}) {
    const double cost = instructions_of(chain_step(1, width).operators[0]);
    EXPECT_GT(cost, before);
    before = cost;
  }
}

}  // namespace
}  // namespace remat::exporting
