// bench/planning.cpp -- how long `auto` takes to plan a transformer's step, and in how much memory.
//
//   bench_planning OPERATORS [PERCENT]      prints one JSON object; PERCENT of the activation peak is the budget, 40
//
// The graph is made here, with the operators, bytes and times of a GPT of width 512 (8 x 256 tokens), as many layers as
// it takes. No torch: the planner alone is measured, on the one thread that it uses.
#include <sys/resource.h>

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <remat/planner.h>

namespace {

using namespace remat;

class Transformer {
 public:
  explicit Transformer(int64_t operators) {
    int32_t x = leaf();
    const auto goal = static_cast<size_t>(operators);
    while (graph_.operators.size() < goal) x = layer(x);
    for (const auto& [use, value] : backward_) {
      event(use ? GraphEvent::Kind::kUse : GraphEvent::Kind::kFree, value, use ? kActivation : 0, 0);
    }
    graph_.step_seconds *= 3;
  }

  const Graph& graph() const { return graph_; }

 private:
  static constexpr int64_t kActivation = 8 * 256 * 512 * 4;
  static constexpr double kProduct = 5.5e-3, kPass = 0.3e-3;  ///< seconds: a product to one activation, a pass over it

  int32_t leaf() {
    graph_.values.push_back({.bytes = kActivation});
    return static_cast<int32_t>(graph_.values.size()) - 1;
  }

  void event(GraphEvent::Kind kind, int32_t index, int64_t rise, int64_t delta) {
    graph_.events.push_back({kind, index, rise, delta});
  }

  int32_t run(const char* name, std::vector<int32_t> inputs, int64_t activations, double seconds) {
    const auto index = static_cast<int32_t>(graph_.operators.size());
    const auto made = static_cast<int32_t>(graph_.values.size());
    const int64_t bytes = activations * kActivation;
    graph_.values.push_back({.bytes = bytes, .producer = index});
    graph_.operators.push_back({name, seconds, seconds, 0, std::move(inputs), {}, {made}});
    graph_.step_seconds += seconds;
    event(GraphEvent::Kind::kOperator, index, bytes, bytes);
    return made;
  }

  int32_t save(int32_t value, int64_t packed = 0) {
    graph_.values[static_cast<size_t>(value)].droppable = true;
    graph_.values[static_cast<size_t>(value)].packed_bytes = packed;
    event(GraphEvent::Kind::kIdle, value, 0, 0);
    backward_.insert(backward_.begin(), {{true, value}, {false, value}});
    return value;
  }

  /// Not saved: it goes when it has been read.
  void release(int32_t value) {
    event(GraphEvent::Kind::kOther, -1, 0, -graph_.values[static_cast<size_t>(value)].bytes);
  }

  int32_t dropout(int32_t x) {
    const int32_t mask = run("aten::bernoulli_", {}, 1, 20 * kPass);
    const int32_t scaled = run("aten::div_", {mask}, 1, kPass);
    release(mask);
    const int32_t y = run("aten::mul", {x, scaled}, 1, kPass);
    save(scaled, kActivation / 32);
    return y;
  }

  int32_t layer(int32_t x) {
    const int32_t norm = save(run("aten::native_layer_norm", {x}, 1, kPass));
    const int32_t qkv = run("aten::mm", {norm}, 3, 3 * kProduct);
    const int32_t biased = save(run("aten::add", {qkv}, 3, 3 * kPass));
    release(qkv);
    const int32_t attention = save(run("aten::_scaled_dot_product_flash_attention_for_cpu", {biased}, 1, 8e-3));
    const int32_t projected = run("aten::mm", {attention}, 1, kProduct);
    const int32_t masked = dropout(projected);
    release(projected);
    const int32_t middle = save(run("aten::add", {x, masked}, 1, kPass));
    release(masked);
    const int32_t norm2 = save(run("aten::native_layer_norm", {middle}, 1, kPass));
    const int32_t wide = run("aten::mm", {norm2}, 4, 4 * kProduct);
    const int32_t wide_biased = save(run("aten::add", {wide}, 4, 4 * kPass));
    release(wide);
    const int32_t gelu = save(run("aten::gelu", {wide_biased}, 4, 4e-3));
    const int32_t narrow = run("aten::mm", {gelu}, 1, 4 * kProduct);
    const int32_t masked2 = dropout(narrow);
    release(narrow);
    const int32_t out = save(run("aten::add", {middle, masked2}, 1, kPass));
    release(masked2);
    return out;
  }

  Graph graph_;
  std::vector<std::pair<bool, int32_t>> backward_;  ///< uses and ends, in backward's order
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::atoll(argv[1]) < 1) {
    std::cerr << "usage: bench_planning OPERATORS [PERCENT]\n";
    return 2;
  }
  const Graph graph = Transformer(std::atoll(argv[1])).graph();
  const int64_t percent = argc > 2 ? std::atoll(argv[2]) : 40;
  const int64_t top = make_plan(graph, INT64_MAX, "keep-all").predicted_peak_bytes;
  const int64_t budget = graph.baseline_bytes + (top - graph.baseline_bytes) * percent / 100;
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const std::clock_t begin = std::clock();  // of this process: others on the machine do not count
  const Plan plan = make_plan(graph, budget);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  getrusage(RUSAGE_SELF, &after);
  std::cout << "{\"operators\": " << graph.operators.size() << ", \"planning_seconds\": " << seconds
            << ", \"planning_bytes\": " << (after.ru_maxrss - before.ru_maxrss) * 1024
            << ", \"process_bytes\": " << after.ru_maxrss * 1024 << ", \"percent\": " << percent
            << ", \"extra_percent\": " << 100 * plan.predicted_seconds / graph.step_seconds << "}\n";
}
