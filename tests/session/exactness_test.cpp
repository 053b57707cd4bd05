// Bit-exactness, one behaviour of autograd at a time.
#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

TEST(Exactness, MultilayerPerceptron) {
  expect_exact([] {
    nn::Sequential model(nn::Linear(16, 32), nn::GELU(), nn::Linear(32, 32), nn::GELU(), nn::Linear(32, 4));
    return backward_of(*model, model->forward(torch::randn({8, 16})).pow(2).mean());
  });
}

TEST(Exactness, DropoutFromTheDefaultGenerator) {
  expect_exact([] {
    nn::Sequential model(nn::Linear(16, 32), nn::Dropout(0.3), nn::ReLU(), nn::Linear(32, 32), nn::Dropout(0.5));
    return backward_of(*model, model->forward(torch::randn({8, 16})).pow(2).mean());
  });
}

/// Noise is added, a mask drawn and a padded tensor put together in every layer, by factories that read no tensor.
at::Tensor forward_with_factories(at::Tensor h, const std::vector<at::Tensor>& weights) {
  for (const auto& weight : weights) {
    h = torch::tanh(h.mm(weight)) + 0.1 * torch::randn(h.sizes());
    h = h * (torch::rand(h.sizes()) > 0.1).to(torch::kFloat);
    auto padded = torch::zeros({h.size(0) + 1, h.size(1)});
    padded.narrow(0, 1, h.size(0)).copy_(h);
    h = h + padded.narrow(0, 0, h.size(0)) * torch::linspace(0, 1, h.size(1));
  }
  return h;
}

std::vector<at::Tensor> square_weights(int count, int64_t width) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < count; ++i) weights.push_back(torch::randn({width, width}).div_(8).requires_grad_());
  return weights;
}

TEST(Exactness, WhatFactoriesMakeAndDraw) {
  for (const int64_t width : {8, 64}) {  // the draws take fewer bytes than a generator's state, and more
    expect_exact([&] {
      const auto weights = square_weights(4, width);
      return backward_of(weights, forward_with_factories(torch::randn({64, width}), weights).pow(2).mean());
    });
  }
}

TEST(Exactness, WhatFactoriesMakeAndDrawIsHeldNoLongerThanInPlain) {
  memory::start_accounting();
  const auto weights = square_weights(4, 512);
  const auto x = torch::randn({512, 512});
  const auto bytes_after_forward = [&] {
    const int64_t before = memory::current();
    const auto loss = forward_with_factories(x, weights).sum();
    const int64_t bytes = memory::current() - before;
    loss.backward();
    return bytes;
  };
  const int64_t plain = bytes_after_forward();
  Session session;
  auto step = session.step();
  const int64_t recorded = bytes_after_forward();
  step.end();
  EXPECT_LE(recorded, plain * 1.01) << plain;
}

void expect_peak_of_plain(at::Tensor (*forward)(at::Tensor, const std::vector<at::Tensor>&)) {
  memory::start_accounting();
  const auto weights = square_weights(4, 256);
  const auto x = torch::randn({256, 256});
  const auto peak = [&] {
    const int64_t before = memory::current();
    memory::reset_peak();
    forward(x, weights).sum().backward();
    return memory::peak() - before;
  };
  peak();
  const int64_t plain = peak();
  Session session;
  auto step = session.step();
  const int64_t recorded = peak();
  EXPECT_LE(recorded, plain * 1.01) << plain;
}

/// Slices of undefined memory are filled one by one, along the last dimension or the first, and read before all are.
at::Tensor forward_with_slices(at::Tensor h, const std::vector<at::Tensor>& weights) {
  constexpr int64_t kSlices = 3;
  for (const auto& weight : weights) {
    const auto f = torch::tanh(h.mm(weight));
    const auto last = torch::empty({h.size(0), h.size(1), kSlices});
    const auto first = torch::empty({kSlices, h.size(0), h.size(1)});
    for (int64_t i = 0; i < kSlices; ++i) {
      last.select(2, i).copy_(f * i);
      first.select(0, kSlices - 1 - i).copy_(f - i);
      h = h + last.narrow(2, 0, i + 1).sum(2) * 0.1;
    }
    h = h + torch::tanh(first).sum(0) * 0.1;
  }
  return h;
}

TEST(Exactness, SlicesOfUndefinedMemory) {
  expect_exact([] {
    const auto weights = square_weights(4, 32);
    return backward_of(weights, forward_with_slices(torch::randn({64, 32}), weights).pow(2).mean());
  });
}

TEST(Exactness, SlicesOfUndefinedMemoryAreHeldNoLongerThanInPlain) { expect_peak_of_plain(forward_with_slices); }

/// Memory is filled whole or in part, undefined or with results in it.
at::Tensor forward_with_fills(at::Tensor h, const std::vector<at::Tensor>& weights) {
  for (const auto& weight : weights) {
    const auto made = torch::tanh(h.detach());
    made.narrow(1, 0, 4).zero_();
    h = torch::tanh(h.mm(weight)) + torch::empty_like(h).fill_(0.4) * h;
    h = h * made + h.detach().clone().fill_(0.2);
    h = h * torch::empty_like(h).zero_().add_(0.9);
  }
  return h;
}

TEST(Exactness, FilledMemory) {
  expect_exact([&] {
    const auto weights = square_weights(4, 32);
    return backward_of(weights, forward_with_fills(torch::randn({64, 32}), weights).pow(2).mean());
  });
}

TEST(Exactness, FilledMemoryIsHeldNoLongerThanInPlain) { expect_peak_of_plain(forward_with_fills); }

TEST(Exactness, FilledMemoryThatIsWrittenToThroughAPointer) {
  expect_exact([&] {
    auto h = torch::randn({64, 32});
    const auto weights = square_weights(4, 32);
    for (const auto& weight : weights) {
      const auto made = torch::empty_like(h).fill_(0.4);
      made.data_ptr<float>()[3] = 2;
      h = torch::tanh(h.mm(weight)) * made;
    }
    return backward_of(weights, h.pow(2).mean());
  });
}

TEST(Exactness, WhatIsUndefinedIsKeptWhereItIsRead) {
  expect_exact([] {
    const auto weight = torch::randn({16, 16}).requires_grad_();
    const auto loss = [&] {
      const auto f = torch::tanh(torch::randn({8, 16}).mm(weight));
      const auto made = torch::empty({2, 8, 16});
      std::fill_n(made.mutable_data_ptr<float>(), made.numel(), 0.5F);  // unseen
      made.select(0, 1).copy_(f);
      const auto resized = torch::empty({2, 8, 16});
      std::fill_n(resized.mutable_data_ptr<float>(), resized.numel(), 0.5F);
      auto out = resized.select(0, 0);
      at::mul_out(out, f.detach().narrow(0, 0, 4), f.detach().narrow(0, 4, 4));  // PyTorch warns: it is smaller
      resized.select(0, 1).copy_(f);
      return torch::tanh(made * 2).sum() + torch::tanh(made.select(0, 1) * 3).sum() + torch::tanh(resized * 2).sum();
    }();
    std::vector<at::Tensor> other_contents;  // of the memory that was free
    for (int i = 0; i < 20; ++i) other_contents.push_back(torch::full({2, 8, 16}, 1e3));
    other_contents.clear();
    return backward_of({weight}, loss);
  });
}

/// Boxed calls, as those of functorch's batching rules: the caller's stack has more on it than the arguments.
at::Tensor call_on(const char* name, const char* overload, torch::jit::Stack below,
                   const torch::jit::Stack& arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  below.insert(below.end(), arguments.begin(), arguments.end());
  op.callBoxed(&below);
  return below[below.size() - op.schema().returns().size()].toTensor();
}

at::Tensor forward_on_a_stack(at::Tensor h, const std::vector<at::Tensor>& weights, bool deeper = true) {
  for (const auto& weight : weights) {
    const auto below = deeper ? torch::jit::Stack{weight, h, true} : torch::jit::Stack();
    h = call_on("aten::mm", "", below, {h, weight});
    const at::Tensor written = call_on("aten::sin", "", below, {h});
    h = h + (written * 2).cos();
    call_on("aten::mul_", "Tensor", below, {written, h.detach()});
    h = call_on("aten::native_dropout", "", below, {h + written, 0.3, true});
    h = h * h.sigmoid();
  }
  return h;
}

TEST(Exactness, BoxedCallsOnADeeperStack) {
  expect_exact([] {
    const auto weights = square_weights(4, 16);
    return backward_of(weights, forward_on_a_stack(torch::randn({64, 16}), weights).pow(2).mean());
  });
}

TEST(Exactness, BoxedCallsOnADeeperStackAreRecordedAndNotKept) {
  const auto weights = square_weights(4, 16);
  Session session;
  const auto count = [&](bool deeper) {
    auto step = session.step();
    forward_on_a_stack(torch::randn({64, 16}), weights, deeper).sum().backward();
    step.end();
    int64_t droppable = 0;
    for (const auto& value : session.graph().values) droppable += value.droppable ? value.bytes : 0;
    return std::pair(session.report().operators_recorded, droppable);
  };
  EXPECT_EQ(count(true), count(false));
}

TEST(Exactness, BatchNormUpdatesItsStatisticsOnce) {
  expect_exact([] {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8),
                         nn::ReLU(nn::ReLUOptions().inplace(true)), nn::Conv2d(8, 8, 3), nn::BatchNorm2d(8),
                         nn::Flatten(), nn::Linear(8 * 36, 4));
    return backward_of(*model, model->forward(torch::randn({4, 3, 8, 8})).pow(2).mean());
  });
}

TEST(Exactness, InPlaceOperatorsAndViews) {
  expect_exact([] {
    nn::Sequential model(nn::Linear(16, 16));
    auto x = model->forward(torch::randn({8, 16}));
    auto h = x * 2;
    h.add_(x).mul_(0.5);
    h.narrow(1, 2, 5).mul_(3).add_(1);
    auto y = h.view({4, 32}).mul(1.5);
    y.select(0, 1).zero_();
    auto z = torch::cat({y, y.exp()}, 1).relu_();
    return backward_of(*model, (z * z.sin()).sum());
  });
}

TEST(Exactness, SizesChangedInPlace) {
  expect_exact([] {
    nn::Sequential model(nn::Linear(16, 16));
    auto x = torch::randn({8, 16});
    const auto shift = torch::randn({8, 16});
    auto h = model->forward(x) + shift;
    auto y = h.tanh().sin();  // tanh saves its own result
    h = (h * 2).unsqueeze_(0).transpose_(1, 2).squeeze_(0);
    auto loss = (h.sin().t() * y).sum();
    shift.unsqueeze_(0);  // a replay of the addition reads it
    return backward_of(*model, loss);
  });
}

TEST(Exactness, AttentionEmbeddingAndLayerNorm) {
  expect_exact([] {
    nn::Sequential holder(nn::Embedding(50, 32), nn::LayerNorm(nn::LayerNormOptions({32})), nn::Linear(32, 96));
    auto tokens = torch::randint(50, {2, 10});
    auto qkv = holder->forward(tokens).view({2, 10, 3, 4, 8}).permute({2, 0, 3, 1, 4});
    auto a = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
    auto b = at::scaled_dot_product_attention(qkv[0], qkv[1], a, {}, 0.25, true);
    return backward_of(*holder, (a * b).sum());
  });
}

TEST(Exactness, Lstm) {
  expect_exact([] {
    auto lstm = nn::LSTM(nn::LSTMOptions(8, 16).num_layers(2).dropout(0.2));
    auto head = nn::Linear(16, 16);
    auto x = head->forward(torch::randn({5, 3, 16})).tanh().narrow(2, 0, 8);
    auto [out, state] = lstm->forward(x);
    auto loss = (out.sigmoid() * out).sum() + std::get<1>(state).pow(2).sum();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*lstm);
    outcome.add_module(*head);
    outcome.add_generator();
    return outcome;
  });
}

}  // namespace
}  // namespace remat::test
