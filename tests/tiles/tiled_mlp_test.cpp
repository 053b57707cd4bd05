// remat::tiled_mlp beside linear layers and activations.
#include <remat/tiled_mlp.h>

#include "support/compare.h"
#include "support/known_processor.h"

namespace remat::test {
namespace {

at::Tensor plain_mlp(const at::Tensor& input, const at::Tensor& up, const at::Tensor& down,
                     const TiledMlpOptions& options) {
  const auto active = [&](const at::Tensor& units) {
    switch (options.activation) {
      case Activation::kGelu:
        return at::gelu(units);
      case Activation::kGeluTanh:
        return at::gelu(units, "tanh");
      case Activation::kSilu:
        return at::silu(units);
      default:
        return at::relu(units);
    }
  };
  const at::Tensor made = at::linear(input, up, options.up_bias);
  const at::Tensor hidden =
      options.gate.defined() ? active(at::linear(input, options.gate, options.gate_bias)) * made : active(made);
  return at::linear(hidden, down, options.down_bias);
}

Outcome mlp_outcome(bool tiled, Activation activation, bool gated, int64_t tokens) {
  return run_seeded([&] {
    const auto leaf = [](std::vector<int64_t> sizes) { return (torch::randn(sizes) * 0.1).requires_grad_(); };
    const at::Tensor input = leaf({2, tokens, 256}), up = leaf({384, 256}), down = leaf({257, 384});
    TiledMlpOptions options;
    options.activation = activation;
    options.up_bias = leaf({384});
    options.down_bias = leaf({257});
    std::vector<at::Tensor> leaves = {input, up, down, options.up_bias, options.down_bias};
    if (gated) {
      leaves.push_back(options.gate = leaf({384, 256}));
      leaves.push_back(options.gate_bias = leaf({384}));
    }
    const at::Tensor result = tiled ? tiled_mlp(input, up, down, options) : plain_mlp(input, up, down, options);
    return backward_of(leaves, result.sin().sum());
  });
}

TEST(TiledMlp, HasTheBitsOfPlain) {
  for (const auto activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu, Activation::kRelu}) {
    for (const bool gated : {false, true}) {
      const std::string what = "activation " + std::to_string(int(activation)) + (gated ? ", gated" : "");
      expect_same_bits(mlp_outcome(false, activation, gated, 524), mlp_outcome(true, activation, gated, 524), what);
      EXPECT_GE(last_tile_choice().rows, has_tiles() ? 1 : 0) << what << ": " << last_tile_choice().reason;
    }
  }
}

TEST(TiledMlp, RefusesDoubleBackward) {
  if (!has_tiles()) GTEST_SKIP() << "there may be no tiles on this processor";
  const at::Tensor input = torch::randn({300, 8}).requires_grad_();
  const at::Tensor result = tiled_mlp(input, torch::randn({64, 8}), torch::randn({8, 64}));
  EXPECT_THROW(torch::autograd::grad({result.sum()}, {input}, {}, true, /*create_graph=*/true), Error);
}

}  // namespace
}  // namespace remat::test
