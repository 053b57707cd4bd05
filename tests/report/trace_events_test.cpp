#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <remat/planner.h>
#include <remat/run.h>

#include "plan/sample_graph.h"

namespace remat::test {
namespace {

using nlohmann::json;

json events_of(const remat::Run& run) { return json::parse(to_trace(run)).at("traceEvents"); }

TEST(TraceEvents, HaveTheOperatorsTheReplaysAndTheMemory) {
  remat::Run run;
  run.graph = chain_graph(40);
  run.plan = make_plan(run.graph, run.graph.baseline_bytes + 100'000);
  run.layers.assign(40, "a layer");
  const Prediction expected = predict(run.graph, run.plan->actions);
  std::map<std::string, int> slices;  // by category, of the planned step
  double replay_micros = 0;
  int64_t peak = 0;
  std::map<std::pair<int, int>, double> ends;  // by process and track
  for (const json& event : events_of(run)) {
    const std::string phase = event.at("ph");
    if (phase == "M") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (phase == "C") {
      if (event.at("pid") != 1 || event.at("name") != "memory") continue;
      int64_t total = 0;
      for (const json& bytes : event.at("args")) total += bytes.get<int64_t>();
      peak = std::max(peak, total);
      continue;
    }
    ASSERT_EQ(phase, "X");
    EXPECT_GE(event.at("dur").get<double>(), 0);
    EXPECT_EQ(event.at("args").value("layer", "a layer"), "a layer");
    // Slices of a track do not overlap: viewers would take one for a part of the other.
    double& end = ends[{event.at("pid"), event.at("tid")}];
    EXPECT_GE(event.at("ts").get<double>(), end - 1e-6);
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
    if (event.at("pid") != 1) continue;
    ++slices[event.at("cat")];
    if (event.at("cat") == "recompute") replay_micros += event.at("dur").get<double>();
  }
  EXPECT_EQ(peak, expected.peak_bytes);
  EXPECT_EQ(slices["forward"], 40);
  EXPECT_GT(slices["backward"], 0);
  EXPECT_GT(slices["recompute"], 0);
  EXPECT_LE(replay_micros, expected.seconds * 1e6 + 1e-3);
}

TEST(TraceEvents, OfAStepWithoutAPlanArePlains) {
  remat::Run run;
  run.graph = chain_graph(5);
  for (const json& event : events_of(run)) EXPECT_EQ(event.at("pid"), 2);
}

}  // namespace
}  // namespace remat::test
