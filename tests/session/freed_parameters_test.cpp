// Parameters that are there while their own layer runs, forward and backward, as under sharded data parallelism.
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <remat/memory.h>
#include <torch/torch.h>

#include "support/compare.h"

namespace remat::test {
namespace {

/// A product with a weight whose memory is freed after the layer's forward pass, and filled for its backward pass.
class FreedLayer {
 public:
  enum class By : uint8_t { kStorage, kData };
  explicit FreedLayer(By by) : by_(by), weight(torch::randn({32, 32}).requires_grad_()), contents_(weight.clone()) {
    free();
  }

  at::Tensor forward(const at::Tensor& x) {
    fill();
    if (x.requires_grad()) x.register_hook([this](const at::Tensor&) { free(); });
    at::Tensor y = Product::apply(x, weight);
    free();
    y.register_hook([this](const at::Tensor&) { fill(); });
    return y;
  }

 private:
  /// Saves the weight itself and no view of it, which would hold its memory.
  struct Product : torch::autograd::Function<Product> {
    static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight) {
      ctx->save_for_backward({x, weight});
      return x.mm(weight);
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                   torch::autograd::variable_list gradients) {
      const auto saved = ctx->get_saved_variables();
      return {gradients[0].mm(saved[1].t()), saved[0].t().mm(gradients[0])};
    }
  };

  void fill() {
    const torch::NoGradGuard no_grad;
    if (by_ == By::kData) {
      weight.set_data(torch::cat({contents_.narrow(0, 0, 16), contents_.narrow(0, 16, 16)}));
    } else {
      resize(static_cast<int64_t>(contents_.nbytes()));
      weight.variable_data().copy_(contents_);
    }
  }
  void free() {
    const torch::NoGradGuard no_grad;
    by_ == By::kData ? weight.set_data(torch::empty({0})) : resize(0);
  }
  void resize(int64_t bytes) {
    const at::Storage storage = weight.storage();
    storage.set_data_ptr(storage.allocator()->allocate(static_cast<size_t>(bytes)));
    storage.set_nbytes(static_cast<size_t>(bytes));
  }

  By by_;

 public:
  at::Tensor weight;

 private:
  at::Tensor contents_;
};

class FreedParameters : public testing::TestWithParam<FreedLayer::By> {
 protected:
  /// Storages go back to the allocator that they came from, whose frees must be seen.
  void SetUp() override { memory::start_accounting(); }

  /// Eight layers, each followed by what saves its result (even ones) or only its input (odd ones). `bytes`: alive at
  /// the end of the forward pass.
  Outcome run(int64_t* bytes = nullptr) const {
    std::vector<std::unique_ptr<FreedLayer>> layers;
    for (int i = 0; i < 8; ++i) layers.push_back(std::make_unique<FreedLayer>(GetParam()));
    at::Tensor x = torch::randn({256, 32}).requires_grad_();
    const at::Tensor input = x;
    const int64_t before = memory::current();
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i]->forward(x.sin());
      x = i % 2 == 0 ? x.tanh() : torch::dropout(x * 2, 0.1, /*train=*/true);
    }
    if (bytes != nullptr) *bytes = memory::current() - before;
    const at::Tensor loss = x.square().mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("gradient of the input", input.grad());
    for (const auto& layer : layers) outcome.add("gradient", layer->weight.grad());
    outcome.add_generator();
    return outcome;
  }
};

TEST_P(FreedParameters, GiveTheSameBits) {
  expect_exact([this] { return run(); });
}

TEST_P(FreedParameters, GiveTheSameBitsWithinABudget) {
  const Outcome plain = run_seeded([this] { return run(); });
  for (const char* const planner : {"auto", "online"}) {
    Session session({.budget = "75%", .planner = planner});
    for (int step = 0; step < 3; ++step) {
      const Outcome ours = run_seeded([&] {
        const Step scope = session.step();
        return run();
      });
      expect_same_bits(plain, ours, planner);
    }
    EXPECT_GT(session.report().values_dropped, 0);
    EXPECT_LE(session.report().peak_bytes, session.report().budget_bytes);
  }
}

TEST_P(FreedParameters, TakeNoMemoryWhereNothingIsDropped) {
  int64_t plain = 0, recorded = 0;
  run_seeded([&] { return run(&plain); });
  Session session{SessionOptions{}};
  run_seeded([&] {
    const Step scope = session.step();
    return run(&recorded);
  });
  const int64_t states = 4 * static_cast<int64_t>(at::detail::getDefaultCPUGenerator().get_state().nbytes());
  EXPECT_LE(recorded, plain + states) << "four layers draw";
}

INSTANTIATE_TEST_SUITE_P(By, FreedParameters, testing::Values(FreedLayer::By::kStorage, FreedLayer::By::kData),
                         [](const auto& each) { return each.param == FreedLayer::By::kData ? "Data" : "Storage"; });

TEST(Factories, DoNotNeedTheContentsOfWhatTheyTakeTheShapeOf) {
  Session session{SessionOptions{}};
  const auto step = [&](bool dropping) {
    const Step scope = session.step();
    std::optional<PolicyScope> policy;
    if (dropping) policy.emplace(Policy::drop_all());
    at::Tensor x = torch::randn({64, 64}).requires_grad_();
    at::Tensor y = x;
    for (int i = 0; i < 20; ++i) y = y + 1;  // which saves nothing
    torch::dropout(y, 0.5, /*train=*/true).sum().backward();
    return x.grad();
  };
  torch::manual_seed(3);
  const at::Tensor plain = step(false);
  torch::manual_seed(3);
  EXPECT_TRUE(same_bits(plain, step(true)));
  EXPECT_GT(session.report().operators_replayed, 0);
  EXPECT_LT(session.report().operators_replayed, 10) << "the mask needs no contents of the 20 sums";
}

}  // namespace
}  // namespace remat::test
