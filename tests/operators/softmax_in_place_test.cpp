// The backward pass of softmax in the memory of the gradient: the same bits, less memory, and only where nobody can see
// it.
#include "support/compare.h"
#include "support/predicted_peaks.h"

namespace remat::test {
namespace {

/// Bytes of the tensors that are as large as the logits, below.
constexpr int64_t kRows = 64, kColumns = 1024, kLogits = kRows * kColumns * 4;

at::Tensor logits(const at::Tensor& weight) { return weight * 1.5; }

at::Tensor targets() { return torch::arange(kRows) * 7 % kColumns; }

/// Gradients, and the bytes by which the step's peak is below plain's.
struct Measured {
  at::Tensor gradient;
  int64_t saved_bytes = 0;
};

Measured run(const std::function<at::Tensor(const at::Tensor&)>& loss, at::TensorOptions options = {}) {
  torch::manual_seed(3);
  const auto weight = torch::randn({kRows, kColumns}, options).requires_grad_();
  weight.mutable_grad() = torch::zeros_like(weight);
  // Plain, as the ledger counts it.
  memory::reset_peak();
  loss(weight).backward();
  const int64_t plain_peak = memory::peak();
  const auto plain = weight.grad().clone();
  weight.mutable_grad().zero_();

  Session session;
  auto step = session.step();
  loss(weight).backward();
  const StepReport report = step.end();
  EXPECT_TRUE(same_bits(plain, weight.grad()));
  EXPECT_EQ(report.plain_peak_bytes, plain_peak + static_cast<int64_t>(plain.nbytes())) << "`plain` is alive, too";
  return {weight.grad(), report.plain_peak_bytes - report.peak_bytes};
}

class SoftmaxBackward : public testing::Test {
 protected:
  SoftmaxBackward() { const Session starts_accounting; }
};

TEST_F(SoftmaxBackward, TakesNoMemoryOfItsOwn) {
  const auto cross_entropy = [](const auto& w) { return torch::nll_loss(torch::log_softmax(logits(w), 1), targets()); };
  const auto factor = torch::randn({kRows, kColumns});
  const auto attention = [&](const auto& w) {
    at::Tensor h = logits(w);
    h = torch::softmax(h, 1);
    return h.mul(factor).sum();
  };
  constexpr int64_t kTargets = kRows * 8 + 8;  // alive at one of two peaks
  EXPECT_NEAR(run(cross_entropy).saved_bytes, kLogits, kTargets);
  EXPECT_NEAR(run(attention).saved_bytes, kLogits, kTargets);
}

TEST_F(SoftmaxBackward, GivesTheSameBitsForAllSizesAndTypes) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{1, 1}, {5}, {33, 7}, {3, 50257}, {4, 5, 6}, {2, 3, 17, 9}}) {
      for (int64_t dim = 0; dim < static_cast<int64_t>(sizes.size()); ++dim) {
        torch::manual_seed(11);
        const auto weight = torch::randn(sizes, type).requires_grad_();
        const auto step_of = [&](bool log) {
          const at::Tensor x = weight * 3;
          (log ? torch::log_softmax(x, dim) : torch::softmax(x, dim)).pow(2).sum().backward();
          return std::exchange(weight.mutable_grad(), at::Tensor());
        };
        for (const bool log : {false, true}) {
          const auto plain = step_of(log);
          Session session;
          auto step = session.step();
          EXPECT_TRUE(same_bits(plain, step_of(log))) << type << " " << at::IntArrayRef(sizes) << " " << dim;
        }
      }
    }
  }
}

TEST_F(SoftmaxBackward, LeavesGradientsAloneThatOthersHave) {
  at::Tensor seen;
  const auto with_hook = [&](const auto& w) {
    seen.reset();
    const auto result = torch::log_softmax(logits(w), 1);
    result.register_hook([&seen](const at::Tensor& gradient) { seen = gradient; });
    return torch::nll_loss(result, targets());
  };
  EXPECT_EQ(run(with_hook).saved_bytes, 0);
  EXPECT_EQ(seen.count_nonzero().item<int64_t>(), kRows) << "the gradient of nll_loss, not of log_softmax";

  at::Tensor retained;
  const auto with_retained = [&](const auto& w) {
    retained.reset();
    retained = torch::log_softmax(logits(w), 1);
    retained.retain_grad();
    return torch::nll_loss(retained, targets());
  };
  run(with_retained);
  EXPECT_EQ(retained.grad().count_nonzero().item<int64_t>(), kRows);
}

TEST_F(SoftmaxBackward, LeavesGradientsAloneThatBackwardWasGiven) {
  const auto weight = torch::randn({8, 16}).requires_grad_();
  const auto given = torch::randn({8, 16});
  const auto before = given.clone();
  Session session;
  auto step = session.step();
  torch::log_softmax(weight, 1).backward(given);
  EXPECT_TRUE(same_bits(given, before));
}

/// Softmax whose backward pass uses the gradient once more, after PyTorch's operator has read it.
struct OwnSoftmax : torch::autograd::Function<OwnSoftmax> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input) {
    const at::Tensor result = torch::softmax(input, 1);
    context->save_for_backward({result});
    return result;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor result = context->get_saved_variables()[0];
    return {at::_softmax_backward_data(gradients[0], result, 1, result.scalar_type()) + gradients[0]};
  }
};

TEST_F(SoftmaxBackward, LeavesGradientsAloneInFunctionsOfTheUsers) {
  EXPECT_EQ(run([](const auto& w) { return OwnSoftmax::apply(logits(w)).pow(3).sum(); }).saved_bytes, 0);
}

/// Its gradient is memory that is not PyTorch's.
struct GivesOwnMemory : torch::autograd::Function<GivesOwnMemory> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, float* memory) {
    context->saved_data["memory"] = reinterpret_cast<int64_t>(memory);
    return input.sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    auto* const memory = reinterpret_cast<float*>(context->saved_data["memory"].toInt());
    return {torch::from_blob(memory, {4, 8}), at::Tensor()};
  }
};

TEST_F(SoftmaxBackward, LeavesMemoryOfTheUsersAlone) {
  std::vector<float> memory(32, 0.5F);
  const auto weight = torch::randn({4, 8}).requires_grad_();
  Session session;
  auto step = session.step();
  GivesOwnMemory::apply(torch::log_softmax(weight * 2, 1), memory.data()).backward();
  EXPECT_EQ(memory, std::vector<float>(32, 0.5F));
}

/// Kernels look at the strides of dimensions of size 1, too.
TEST_F(SoftmaxBackward, GivesPlainsStrides) {
  const auto weight = torch::randn({1, 8}).requires_grad_();
  Session session;
  auto step = session.step();
  const at::Tensor x = weight * 2, result = torch::log_softmax(x, 1);
  std::vector<int64_t> strides;
  x.register_hook([&](const at::Tensor& gradient) { strides = gradient.strides().vec(); });
  result.register_hook([](const at::Tensor& gradient) { return torch::empty_strided({1, 8}, {1, 1}).copy_(gradient); });
  result.pow(2).sum().backward();
  EXPECT_EQ(strides, (std::vector<int64_t>{8, 1}));
}

/// The meta device's kernels are not ours; only a graph, where there is one, has to know.
TEST_F(SoftmaxBackward, OnTheMetaDeviceWithAndWithoutAGraph) {
  const auto meta = at::TensorOptions(at::kMeta);
  const auto weight = torch::randn({kRows, 32}, meta).requires_grad_(),
             head = torch::randn({32, kColumns}, meta).requires_grad_();
  for (const char* planner : {"auto", "online"}) {
    Session session({.device = at::kMeta, .planner = planner});
    for (int i = 0; i < 2; ++i) {
      auto step = session.step();
      torch::nll_loss(torch::log_softmax(weight.tanh().mm(head), 1), torch::zeros({kRows}, meta.dtype(at::kLong)))
          .backward();
      step.end();
    }
    if (std::string(planner) == "online") continue;
    int64_t reused = 0;
    for (const GraphEvent& event : session.graph().events) reused += event.reused;
    EXPECT_EQ(reused, kLogits);
  }
}

/// A hook gives away what a replay is going to read.
TEST_F(SoftmaxBackward, LeavesValuesAlone) {
  const auto weight = torch::randn({8, 16}).requires_grad_();
  const auto program = [&] {
    const at::Tensor made = weight * 2;
    at::Tensor given = made.detach() + 1;
    const at::Tensor later = (given * 0.3).exp() * weight;
    const at::Tensor result = torch::log_softmax(made, 1);
    result.register_hook([held = std::make_shared<at::Tensor>(std::move(given))](const at::Tensor&) -> at::Tensor {
      return std::move(*held);
    });
    const auto gradient = torch::autograd::grad({result.sum()}, {made}, {}, /*retain_graph=*/true)[0];
    later.sum().backward();
    return std::exchange(weight.mutable_grad(), at::Tensor());
  };
  const auto plain = program();
  Session session;
  auto step = session.step();
  const PolicyScope drop(Policy::drop_all());
  EXPECT_TRUE(same_bits(plain, program()));
}

TEST_F(SoftmaxBackward, IsPyTorchsWhereBackwardMakesAGraph) {
  const auto weight = torch::randn({8, 16}).requires_grad_();
  const auto program = [&] {
    const auto loss = torch::log_softmax(weight * 2, 1).pow(2).sum();
    const auto gradient = torch::autograd::grad({loss}, {weight}, {}, true, true)[0];
    gradient.pow(2).sum().backward();
    return std::exchange(weight.mutable_grad(), at::Tensor());
  };
  const auto plain = program();
  Session session;
  auto step = session.step();
  EXPECT_TRUE(same_bits(plain, program()));
}

/// The peak is where softmax runs backward, and the graph says how much of plain's it is.
TEST_F(SoftmaxBackward, PeaksWhereItsPlanSays) {
  const auto weight = torch::randn({kRows, 32}).requires_grad_(), head = torch::randn({32, kColumns}).requires_grad_();
  for (const auto& p : {weight, head}) p.mutable_grad() = torch::zeros_like(p);
  expect_predicted_peaks([&](Session& session) {
    auto step = session.step();
    torch::nll_loss(torch::log_softmax(weight.tanh().mm(head), 1), targets()).backward();
    step.end();
  });

  Session session;
  auto step = session.step();
  torch::nll_loss(torch::log_softmax(weight.tanh().mm(head), 1), targets()).backward();
  const StepReport report = step.end();
  const Graph graph = session.graph();
  EXPECT_EQ(graph.plain_peak_bytes(), report.plain_peak_bytes);
  EXPECT_EQ(make_plan(graph, int64_t{1} << 40).predicted_peak_bytes, report.peak_bytes);
  EXPECT_GT(report.plain_peak_bytes - report.peak_bytes, kLogits / 4);
}

}  // namespace
}  // namespace remat::test
