#include "bench/generated_graphs.h"

#include <algorithm>
#include <array>
#include <utility>

#include <remat/error.h>

#include <remat/support/mix.h>

namespace remat::bench {
namespace {

constexpr double kSecondsPerByte = 1e-10, kSecondsPerFlop = 1e-11, kOverhead = 2e-6;

/// A forward pass operator by operator; finish() adds the backward pass.
class StepWriter {
 public:
  explicit StepWriter(uint64_t seed) {
    for (uint64_t i = 0; i <= seed; ++i) random_ = support::SplitMix(random_.next());
  }

  int64_t operators() const { return static_cast<int64_t>(graph_.operators.size()); }
  int64_t bytes(int32_t value) const { return graph_.values[value].bytes; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  bool chance(int percent) { return between(0, 99) < percent; }

  int32_t input(int64_t bytes) {
    graph_.values.push_back({.bytes = bytes});
    graph_.baseline_bytes += bytes;
    return static_cast<int32_t>(graph_.values.size()) - 1;
  }

  /// A weight and its gradient.
  void parameter(int64_t bytes) {
    graph_.parameter_bytes += bytes;
    graph_.gradient_bytes += bytes;
    graph_.baseline_bytes += 2 * bytes;
  }

  struct Saves {
    std::vector<int32_t> inputs;  ///< those that the backward operator reads
    bool results = false;         ///< does it read the results?
    int packed = 0;               ///< the results can be packed to a part in so many of their bytes; 0: not at all
    int64_t scratch = 0;
  };

  /// Returns the first of `results`.
  int32_t run(const char* name, std::vector<int32_t> inputs, const std::vector<int64_t>& results, double flops,
              Saves saves) {
    const auto index = static_cast<int32_t>(graph_.operators.size());
    const auto first = static_cast<int32_t>(graph_.values.size());
    double moved = 0;
    for (const int32_t v : inputs) moved += static_cast<double>(bytes(v));
    GraphOperator op;
    op.name = name;
    op.scratch_bytes = saves.scratch;
    for (const int64_t size : results) {
      moved += static_cast<double>(size);
      op.results.push_back(static_cast<int32_t>(graph_.values.size()));
      graph_.values.push_back({.bytes = size, .producer = index});
      if (saves.packed > 0) graph_.values.back().packed_bytes = std::max<int64_t>(1, size / saves.packed);
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    op.seconds = op.replay_seconds = kOverhead + moved * kSecondsPerByte + flops * kSecondsPerFlop;
    op.inputs = std::move(inputs);
    graph_.operators.push_back(std::move(op));
    graph_.step_seconds += 3 * graph_.operators.back().seconds;
    if (saves.results)
      saves.inputs.insert(saves.inputs.end(), graph_.operators.back().results.begin(),
                          graph_.operators.back().results.end());
    saved_by_.push_back(std::move(saves.inputs));
    return first;
  }

  int32_t linear(int32_t x, int64_t rows, int64_t in, int64_t out) {
    parameter(4 * in * out);
    return run("aten::addmm", {x}, {4 * rows * out}, 2.0 * static_cast<double>(rows * in) * static_cast<double>(out),
               {{x}});
  }
  int32_t unary(const char* name, int32_t x, bool saves_result) {
    Saves saves;
    saves.results = saves_result;
    if (!saves_result) saves.inputs = {x};
    return run(name, {x}, {bytes(x)}, 0, std::move(saves));
  }
  int32_t add(int32_t a, int32_t b) { return run("aten::add", {a, b}, {std::max(bytes(a), bytes(b))}, 0, {}); }
  int32_t multiply(int32_t a, int32_t b) {
    return run("aten::mul", {a, b}, {std::max(bytes(a), bytes(b))}, 0, {{a, b}});
  }
  int32_t layer_norm(int32_t x, int64_t rows) {
    return run("aten::native_layer_norm", {x}, {bytes(x), 4 * rows, 4 * rows}, 0, {{x}});
  }
  int32_t dropout(int32_t x) {
    const int32_t mask = run("aten::bernoulli_", {}, {bytes(x)}, 30 * static_cast<double>(bytes(x)), {{}, true, 32});
    return run("aten::mul", {x, mask}, {bytes(x)}, 0, {{mask}});
  }

  Graph finish();

 private:
  void event(GraphEvent::Kind kind, int32_t index, int64_t rise = 0, int64_t delta = 0) {
    graph_.events.push_back({kind, index, std::max(rise, delta), delta});
  }
  void forward();
  void backward();

  support::SplitMix random_;
  Graph graph_;
  std::vector<std::vector<int32_t>> saved_by_;  ///< by operator
  std::vector<int32_t> last_reader_, uses_;     ///< by value
};

void StepWriter::forward() {
  const size_t values = graph_.values.size();
  last_reader_.assign(values, -1);
  uses_.assign(values, 0);
  for (int32_t o = 0; o < operators(); ++o) {
    for (const int32_t v : graph_.operators[o].inputs) last_reader_[v] = o;
    for (const int32_t v : graph_.operators[o].results) last_reader_[v] = o;
    for (const int32_t v : saved_by_[o]) ++uses_[v];
  }
  std::vector<std::vector<int32_t>> ends(saved_by_.size());
  for (size_t v = 0; v < values; ++v) {
    if (graph_.values[v].producer < 0) continue;
    ends[last_reader_[v]].push_back(static_cast<int32_t>(v));
    graph_.values[v].droppable = uses_[v] > 0;
    if (uses_[v] == 0) graph_.values[v].packed_bytes = 0;
  }
  for (int32_t o = 0; o < operators(); ++o) {
    const GraphOperator& op = graph_.operators[o];
    int64_t made = 0;
    for (const int32_t v : op.results) made += bytes(v);
    event(GraphEvent::Kind::kOperator, o, made + op.scratch_bytes, made);
    for (const int32_t v : ends[o]) {
      if (uses_[v] > 0) {
        event(GraphEvent::Kind::kIdle, v);
      } else {
        event(GraphEvent::Kind::kOther, -1, 0, -bytes(v));
      }
    }
  }
}

void StepWriter::backward() {
  std::vector<bool> has_gradient(graph_.values.size(), false);
  for (auto o = static_cast<int32_t>(operators()); o-- > 0;) {
    const GraphOperator& op = graph_.operators[o];
    int64_t gradients = 0;
    for (const int32_t v : op.inputs) {
      if (graph_.values[v].producer < 0 || has_gradient[v]) continue;
      has_gradient[v] = true;
      gradients += bytes(v);
    }
    int64_t used_up = 0;
    for (const int32_t v : op.results) used_up += has_gradient[v] ? bytes(v) : 0;
    for (const int32_t v : saved_by_[o]) {
      if (graph_.values[v].producer >= 0) event(GraphEvent::Kind::kUse, v);
    }
    event(GraphEvent::Kind::kOther, -1, gradients + op.scratch_bytes, gradients);
    for (const int32_t v : saved_by_[o]) {
      if (graph_.values[v].producer >= 0 && --uses_[v] == 0) event(GraphEvent::Kind::kFree, v);
    }
    event(GraphEvent::Kind::kOther, -1, 0, -used_up);
  }
}

Graph StepWriter::finish() {
  forward();
  backward();
  return std::move(graph_);
}

// ---- The kinds. ----

void chain(StepWriter& step, int64_t operators) {
  const int64_t rows = step.between(256, 2048);
  int64_t width = 64 * step.between(2, 16);
  int32_t x = step.input(4 * rows * width);
  while (step.operators() < operators) {
    const int64_t next = step.chance(70) ? width : 64 * step.between(2, 16);
    x = step.linear(x, rows, width, next);
    width = next;
    x = step.unary(step.chance(50) ? "aten::gelu" : "aten::tanh", x, step.chance(50));
    if (step.chance(30)) x = step.dropout(x);
  }
}

int32_t attention(StepWriter& step, int32_t x, int64_t rows, int64_t length, int64_t width, bool fused) {
  const int32_t qkv = step.linear(x, rows, width, 3 * width);
  const double flops = 4.0 * static_cast<double>(rows) * static_cast<double>(length * width);
  int32_t mixed = -1;
  if (fused) {
    mixed = step.run("aten::_scaled_dot_product_flash_attention_for_cpu", {qkv}, {4 * rows * width, 4 * rows * 8},
                     flops, {{qkv}, true});
  } else {
    const int32_t scores = step.run("aten::bmm", {qkv}, {4 * rows * length * 8}, flops / 2, {{qkv}});
    int32_t weights = step.unary("aten::_softmax", scores, true);
    if (step.chance(50)) weights = step.dropout(weights);
    mixed = step.run("aten::bmm", {weights, qkv}, {4 * rows * width}, flops / 2, {{weights, qkv}});
  }
  return step.linear(mixed, rows, width, width);
}

void transformer(StepWriter& step, int64_t operators) {
  const int64_t width = 64 * step.between(4, 12), length = 64 * step.between(1, 6), rows = length * step.between(2, 8);
  const bool fused = step.chance(60), drops = step.chance(60);
  int32_t x = step.input(4 * rows * width);
  while (step.operators() < operators) {
    int32_t y = attention(step, step.layer_norm(x, rows), rows, length, width, fused);
    if (drops) y = step.dropout(y);
    x = step.add(x, y);
    y = step.linear(step.layer_norm(x, rows), rows, width, 4 * width);
    y = step.linear(step.unary("aten::gelu", y, false), rows, 4 * width, width);
    if (drops) y = step.dropout(y);
    x = step.add(x, y);
  }
}

/// Of feature maps: bytes of one channel, channels.
struct Map {
  int32_t value = -1;
  int64_t plane = 0, channels = 0;
};

Map convolution(StepWriter& step, Map x, int64_t channels, int64_t kernel, int64_t stride) {
  const int64_t plane = std::max<int64_t>(64, x.plane / (stride * stride));
  step.parameter(4 * x.channels * channels * kernel * kernel);
  const double flops =
      2.0 * static_cast<double>(plane / 4) * static_cast<double>(x.channels * channels * kernel * kernel);
  const int32_t y =
      step.run("aten::convolution", {x.value}, {plane * channels}, flops, {{x.value}, false, 0, plane * channels / 4});
  return {y, plane, channels};
}

Map norm_and_relu(StepWriter& step, Map x, bool relu) {
  x.value = step.run("aten::native_batch_norm", {x.value}, {x.plane * x.channels, 4 * x.channels, 4 * x.channels}, 0,
                     {{x.value}});
  if (relu) x.value = step.unary("aten::relu", x.value, true);
  return x;
}

void resnet(StepWriter& step, int64_t operators) {
  const int64_t stages = 4, width = 16 * step.between(1, 4);
  Map x{-1, 4 * step.between(4, 16) * 32 * 32, width};
  x.value = step.input(x.plane * width);
  for (int64_t stage = 0; stage < stages; ++stage) {
    int64_t stride = stage == 0 ? 1 : 2;
    const int64_t inner = width << stage;
    while (step.operators() < operators * (stage + 1) / stages) {
      Map y = norm_and_relu(step, convolution(step, x, inner, 1, 1), true);
      y = norm_and_relu(step, convolution(step, y, inner, 3, stride), true);
      y = norm_and_relu(step, convolution(step, y, 4 * inner, 1, 1), false);
      const Map shortcut =
          x.channels == 4 * inner ? x : norm_and_relu(step, convolution(step, x, 4 * inner, 1, stride), false);
      y.value = step.unary("aten::relu", step.add(y.value, shortcut.value), true);
      x = y;
      stride = 1;
    }
  }
}

void unet(StepWriter& step, int64_t operators) {
  const int64_t levels = step.between(3, 5), width = 8 * step.between(1, 4);
  const int64_t convolutions = std::max<int64_t>(1, operators / (3 * (2 * levels + 1)));
  Map x{-1, 4 * step.between(2, 8) * 64 * 64, 3};
  x.value = step.input(x.plane * 3);
  const auto block = [&](int64_t channels) {
    for (int64_t c = 0; c < convolutions; ++c) x = norm_and_relu(step, convolution(step, x, channels, 3, 1), true);
  };
  std::vector<Map> skips;
  for (int64_t level = 0; level < levels; ++level) {
    block(width << level);
    skips.push_back(x);
    x.value = step.run("aten::max_pool2d_with_indices", {x.value}, {x.plane / 4 * x.channels, x.plane / 2 * x.channels},
                       0, {{x.value}, true});
    x.plane /= 4;
  }
  block(width << levels);
  for (; !skips.empty(); skips.pop_back()) {
    const Map skip = skips.back();
    const int32_t up = step.run("aten::upsample_nearest2d", {x.value}, {skip.plane * x.channels}, 0, {});
    const int32_t both = step.run("aten::cat", {up, skip.value}, {skip.plane * (x.channels + skip.channels)}, 0, {});
    x = {both, skip.plane, x.channels + skip.channels};
    block(skip.channels);
  }
}

void lstm(StepWriter& step, int64_t operators) {
  const int64_t batch = step.between(16, 128), width = 32 * step.between(4, 16), layers = step.between(1, 3);
  const int64_t state = 4 * batch * width;
  std::vector<int32_t> h, c;
  for (int64_t layer = 0; layer < layers; ++layer) {
    h.push_back(step.input(state));
    c.push_back(step.input(state));
  }
  while (step.operators() < operators) {
    int32_t x = step.input(state);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int32_t gates =
          step.add(step.linear(x, batch, width, 4 * width), step.linear(h[layer], batch, width, 4 * width));
      std::array<int32_t, 4> gate{};
      for (size_t g = 0; g < gate.size(); ++g) {
        gate[g] = step.run(g == 2 ? "aten::tanh" : "aten::sigmoid", {gates}, {state}, 0, {{}, true});
      }
      c[layer] = step.add(step.multiply(gate[1], c[layer]), step.multiply(gate[0], gate[2]));
      h[layer] = x = step.multiply(gate[3], step.unary("aten::tanh", c[layer], true));
    }
  }
}

void experts(StepWriter& step, int64_t operators) {
  const int64_t rows = 64 * step.between(4, 32), width = 64 * step.between(2, 8), count = step.between(4, 8);
  int32_t x = step.input(4 * rows * width);
  while (step.operators() < operators) {
    int32_t y = attention(step, step.layer_norm(x, rows), rows, 64, width, true);
    x = step.add(x, y);
    const int32_t norm = step.layer_norm(x, rows);
    const int32_t weights = step.unary("aten::_softmax", step.linear(norm, rows, width, count), true);
    const int32_t chosen = step.run("aten::topk", {weights}, {4 * rows * 2, 8 * rows * 2}, 0, {{}, true});
    int32_t sum = x;
    for (int64_t e = 0; e < count; ++e) {
      const int64_t own = std::max<int64_t>(1, rows * step.between(1, 40) / 80);
      const int32_t picked = step.run("aten::index", {norm, chosen}, {4 * own * width}, 0, {{chosen}});
      const int32_t wide = step.linear(picked, own, width, 4 * width);
      y = step.linear(step.unary("aten::gelu", wide, false), own, 4 * width, width);
      y = step.multiply(y, step.run("aten::index", {weights, chosen}, {4 * own}, 0, {{chosen}}));
      sum = step.run("aten::index_add", {sum, y}, {4 * rows * width}, 0, {});
    }
    x = sum;
  }
}

void dag(StepWriter& step, int64_t operators) {
  std::vector<int32_t> known = {step.input(1 << 20)};
  const auto older = [&] {
    const auto count = static_cast<int64_t>(known.size());
    const int64_t reach = step.chance(80) ? 4 : 40;
    return known[static_cast<size_t>(std::max<int64_t>(0, count - step.between(1, reach)))];
  };
  while (step.operators() < operators) {
    const int32_t a = older(), b = older();
    const int64_t bytes = (1 << 14) * step.between(1, 64);
    const double flops = step.chance(40) ? 1e6 * static_cast<double>(step.between(1, 200)) : 0;
    StepWriter::Saves saves;
    if (step.chance(60)) saves.inputs.push_back(a);
    if (a != b && step.chance(30)) saves.inputs.push_back(b);
    saves.results = step.chance(30);
    if (saves.results && step.chance(20)) saves.packed = 32;
    known.push_back(step.run(flops > 0 ? "aten::mm" : "aten::add", {a, b}, {bytes}, flops, std::move(saves)));
  }
}

using Kind = std::pair<std::string_view, void (*)(StepWriter&, int64_t)>;
constexpr std::array<Kind, 7> kKinds = {{{"chain", chain},
                                         {"transformer", transformer},
                                         {"resnet", resnet},
                                         {"unet", unet},
                                         {"lstm", lstm},
                                         {"experts", experts},
                                         {"dag", dag}}};

}  // namespace

const std::vector<std::string_view>& graph_kinds() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> result;
    for (const Kind& kind : kKinds) result.push_back(kind.first);
    return result;
  }();
  return names;
}

Graph generate_graph(std::string_view kind, int64_t operators, uint64_t seed) {
  constexpr int64_t kFewest = 10;
  const auto* const found = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.first == kind; });
  if (found == kKinds.end() || operators < kFewest) {
    throw Error("[generated graphs] there is no graph of " + std::to_string(operators) + " operators of the kind \"" +
                std::string(kind) + "\"; ask for " + std::to_string(kFewest) + " or more and a kind of graph_kinds()");
  }
  StepWriter step(seed);
  found->second(step, operators);
  return step.finish();
}

}  // namespace remat::bench
