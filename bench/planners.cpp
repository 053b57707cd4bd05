// bench/planners.cpp -- what each planner makes of one graph, at budgets from 90 to 3 % of plain's activation peak.
//
//   bench_planners GRAPH.json | KIND:OPERATORS:SEED [PLANNER ...]     prints one JSON object
//
// Of all planners if none is named; "auto" also as "refined". `seconds` are of the processor, one thread;
// `extra_percent` is recompute in percent of the step, null where the planner has no plan.
#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <remat/error.h>
#include <remat/planner.h>

#include "bench/generated_graphs.h"

namespace {

using namespace remat;

constexpr std::array kShares = {90, 80, 70, 60, 50, 45, 40, 35, 30, 25, 20, 15, 10, 5, 3};

Graph read_graph(const std::string& name) {
  if (name.ends_with(".json")) {
    std::ifstream file(name, std::ios::binary);
    return graph_from_json(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  const size_t first = name.find(':'), second = name.find(':', first + 1);
  if (second == std::string::npos) throw Error("[bench_planners] \"" + name + "\" is no KIND:OPERATORS:SEED");
  return bench::generate_graph(name.substr(0, first), std::stoll(name.substr(first + 1)),
                               std::stoull(name.substr(second + 1)));
}

std::string row(const Graph& graph, const std::string& planner, int share, int64_t top) {
  const int64_t room = top - graph.baseline_bytes;
  const bool refined = planner == "refined";
  std::string extra = "null";
  const std::clock_t begin = std::clock();
  try {
    const Plan plan =
        make_plan(graph, graph.baseline_bytes + room / 100 * share, refined ? "auto" : planner, {.refine = refined});
    extra = std::to_string(100 * plan.predicted_seconds / graph.step_seconds);
  } catch (const BudgetError&) {
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return "{\"planner\": \"" + planner + "\", \"share\": " + std::to_string(share) + ", \"extra_percent\": " + extra +
         ", \"seconds\": " + std::to_string(seconds) + "}";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw Error("[bench_planners] usage: bench_planners GRAPH.json | KIND:OPERATORS:SEED [PLANNER ...]");
  const Graph graph = read_graph(argv[1]);
  if (const std::string problem = graph.problem(); !problem.empty()) throw Error("[bench_planners] " + problem);
  std::vector<std::string> planners(argv + 2, argv + argc);
  if (planners.empty()) {
    for (const PlannerInfo& planner : list_planners()) planners.emplace_back(planner.name);
    planners.emplace_back("refined");
  }
  const int64_t top = make_plan(graph, INT64_MAX, "keep-all").predicted_peak_bytes;
  std::cout << "{\"graph\": \"" << argv[1] << "\", \"operators\": " << graph.operators.size() << ", \"rows\": [";
  bool first = true;
  for (const std::string& planner : planners) {
    for (const int share : kShares) {
      std::cout << (first ? "\n  " : ",\n  ") << row(graph, planner, share, top);
      first = false;
    }
  }
  std::cout << "]}\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
