#include <gtest/gtest.h>

#include <remat/run.h>

#include "plan/sample_graph.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

/// A chain whose values have 4 KiB each (a third of them 128 B when packed), and whose replays take 1 ms.
auto chain_run(std::vector<std::string> layers) {
  remat::Run run;
  run.graph = chain_graph(static_cast<int32_t>(layers.size()));
  run.layers = std::move(layers);
  for (GraphValue& value : run.graph.values) {
    value.bytes = 4096;
    if (value.packed_bytes > 0) value.packed_bytes = 128;
  }
  for (GraphOperator& op : run.graph.operators) {
    op.replay_seconds = 1e-3;
    op.name = "aten::mul";
  }
  return run;
}

auto with_plan(remat::Run run, const std::vector<Action>& actions) {
  run.plan.emplace();
  run.plan->graph_fingerprint = run.graph.fingerprint();
  run.plan->actions.assign(1, Action::kKeep);  // of the input
  run.plan->actions.insert(run.plan->actions.end(), actions.begin(), actions.end());
  return run;
}

TEST(LayerTable, HasWhatAPlanDoesWithEachLayer) {
  const auto run =
      with_plan(chain_run({"embed", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", ""}),
                {Action::kKeep, Action::kRecompute, Action::kKeep, Action::kPack, Action::kRecompute, Action::kKeep});
  EXPECT_EQ(
      to_text(run),
      "layer           saved in plain      kept    packed  held packed in  recomputed  run again  planned time\n"
      "embed                 4.00 KiB  4.00 KiB         -               -           -          -             -\n"
      "layers.0-1 x 2        16.0 KiB  4.00 KiB  4.00 KiB           128 B    8.00 KiB          2       2.00 ms\n"
      "  up                  8.00 KiB         -  4.00 KiB           128 B    4.00 KiB          1       1.00 ms\n"
      "  down                8.00 KiB  4.00 KiB         -               -    4.00 KiB          1       1.00 ms\n"
      "(no layer)            4.00 KiB  4.00 KiB         -               -           -          -             -\n"
      "all                   24.0 KiB  12.0 KiB  4.00 KiB           128 B    8.00 KiB          2       2.00 ms\n");
}

/// The names in the first column.
std::vector<std::string> rows_of(const remat::Run& run) {
  std::vector<std::string> rows;
  std::istringstream text(to_text(run));
  for (std::string line; std::getline(text, line);) rows.push_back(line.substr(0, line.find("  ", 4)));
  for (std::string& row : rows) row.erase(row.find_last_not_of(' ') + 1);
  rows.erase(rows.begin());
  rows.pop_back();
  return rows;
}

TEST(LayerTable, FoldsLayersThatSaveTheSame) {
  using Rows = std::vector<std::string>;
  EXPECT_EQ(rows_of(chain_run({"h.0", "h.1", "h.2", "h.4"})), Rows{"h.0-2,4 x 4"}) << "a gap";
  EXPECT_EQ(rows_of(chain_run({"block0.a", "block1.a", "block2.b"})), (Rows{"block0-1 x 2", "  a", "block2.b"}))
      << "others inside";
  EXPECT_EQ(rows_of(chain_run({"0.0", "0.1", "1.0", "1.1"})), (Rows{"0-1 x 2", "  0-1 x 2"})) << "nothing but numbers";
  EXPECT_EQ(rows_of(chain_run({"net.0.f", "net.0", "net.1.f", "net.2"})),
            (Rows{"net.0", "  f", "net.1", "  f", "net.2"}))
      << "a value of the layer itself";
  EXPECT_EQ(rows_of(chain_run({"h.1", "h.0"})), Rows{"h.0-1 x 2"}) << "in another order";
  EXPECT_EQ(rows_of(chain_run({"q", "k", "a1", "b1"})), (Rows{"q", "k", "a1", "b1"})) << "other names";
  EXPECT_EQ(rows_of(chain_run({"e01", "e1", "e2"})), (Rows{"e01", "e1-2 x 2"})) << "no number is written so";
  EXPECT_EQ(rows_of(chain_run({"m.99999999999999999999", "m.1"})), (Rows{"m", "  99999999999999999999", "  1"}));
  std::vector<std::string> even;
  for (int layer = 0; layer < 40; layer += 2) even.push_back("h." + std::to_string(layer));
  EXPECT_EQ(rows_of(chain_run(even)), Rows{"h.0,2,4,6,..,38 x 20"});
}

TEST(LayerTable, LayersThatSaveOtherBytesHaveRowsOfTheirOwn) {
  auto run = chain_run({"h.0", "h.1", "h.2"});
  run.graph.values[2].bytes = 4032;
  EXPECT_EQ(rows_of(run), (std::vector<std::string>{"h.0,2 x 2", "h.1"}));
}

TEST(LayerTable, LayersOfOtherOperatorsHaveRowsOfTheirOwn) {
  using Rows = std::vector<std::string>;
  auto run = chain_run({"h.0", "h.1", "h.2"});
  run.graph.operators[1].name = "aten::gelu";
  EXPECT_EQ(rows_of(run), (Rows{"h.0,2 x 2", "h.1"}));
  run = chain_run({"h.0", "h.0", "h.1", "h.1"});
  EXPECT_EQ(rows_of(run), Rows{"h.0-1 x 2"});
  run.graph.operators[2].name = "aten::gelu";
  EXPECT_EQ(rows_of(run), (Rows{"h.0", "h.1"})) << "one of two";
  run = chain_run({"h.0.f", "h.0.f", "h.1.f", "h.1.f"});
  run.graph.values[1].bytes = run.graph.values[4].bytes = 2048;
  EXPECT_EQ(rows_of(run), (Rows{"h.0", "  f", "h.1", "  f"})) << "as many bytes in all";
}

TEST(LayerTable, WithoutAPlanHasWhatPlainSaves) {
  auto run = chain_run({"a", "b"});
  const std::string table =
      "layer  saved in plain\n"
      "a            4.00 KiB\n"
      "b            4.00 KiB\n"
      "all          8.00 KiB\n";
  EXPECT_EQ(to_text(run), table);
  run.report.emplace();
  EXPECT_EQ(to_text(run), table);
  run.report->values_dropped = 1;
  EXPECT_EQ(to_text(run), table + "no plan was followed: what was evicted as memory ran short is not known by layer\n");
}

TEST(LayerTable, CountsWhatIsSavedAndNothingElse) {
  auto run = chain_run({"a", "b", "c"});
  std::erase_if(run.graph.events,
                [](const GraphEvent& event) { return event.kind != GraphEvent::Kind::kOperator && event.index == 1; });
  run.graph.values[1].droppable = false;
  run.graph.values[1].packed_bytes = 0;
  run.graph.values[2].droppable = false;  // saved, and kept in any case
  run.graph.values[3].droppable = false;
  run.graph.values[3].dropped = true;  // by a policy
  const auto text = to_text(with_plan(run, {Action::kKeep, Action::kKeep, Action::kKeep}));
  EXPECT_EQ(text,
            "layer  saved in plain      kept  recomputed  run again  planned time\n"
            "b            4.00 KiB  4.00 KiB           -          -             -\n"
            "c            4.00 KiB         -    4.00 KiB          1       1.00 ms\n"
            "all          8.00 KiB  4.00 KiB    4.00 KiB          1       1.00 ms\n");
}

TEST(LayerTable, NeedsASoundRunWithLayers) {
  auto run = chain_run({"a"});
  run.layers.clear();
  EXPECT_ERROR(to_text(run), "[run] the step has no names of layers");
  run.layers = {"a", "b"};
  EXPECT_ERROR(to_text(run), "[run] there are 2 layers");
}

}  // namespace
}  // namespace remat::test
