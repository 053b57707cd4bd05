// Steps peak where their plan says, to the byte, whatever the plan: what replays need beside saved values counts too.
#include "support/predicted_peaks.h"

#include <cstring>

#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// Runs the program as the steps of sessions; its gradients exist before, and are accumulated. What it is given, 1,
/// comes from wide layers: where they are dropped, the peak is at the end of backward, with all that was not freed.
void expect_predicted(std::vector<at::Tensor> parameters, const std::function<at::Tensor(const at::Tensor&)>& loss) {
  parameters.push_back(torch::zeros({256, 256}).requires_grad_());
  for (const at::Tensor& p : parameters) p.mutable_grad() = at::zeros_like(p);
  expect_predicted_peaks([&](Session& session) {
    torch::manual_seed(5);
    Step step = session.step();
    at::Tensor wide = parameters.back();
    for (int i = 0; i < 6; ++i) wide = wide.tanh();
    wide = wide.mean() + 1;
    loss(wide).backward();
    wide.reset();
    step.end();
  });
}

TEST(PredictedPeaks, StatisticsOfBatchNormalization) {
  nn::Sequential layers;
  for (int i = 0; i < 6; ++i) {
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
    layers->push_back(nn::BatchNorm2d(16));
    layers->push_back(nn::ReLU(nn::ReLUOptions(true)));
  }
  const auto x = torch::randn({2, 16, 4, 4});
  expect_predicted(layers->parameters(), [&](const at::Tensor& one) { return layers->forward(x * one).pow(2).mean(); });
}

TEST(PredictedPeaks, PackedMasks) {
  nn::Sequential layers;
  for (int i = 0; i < 6; ++i) layers->push_back(nn::Linear(32, 32));
  const auto x = torch::randn({64, 32});
  expect_predicted(layers->parameters(), [&](const at::Tensor& one) {
    at::Tensor h = x * one;
    for (int i = 0; i < 6; ++i) h = torch::dropout(layers->ptr<nn::LinearImpl>(i)->forward(h), 0.2, true);
    return h.pow(2).mean();
  });
}

/// Plain frees it when the forward pass is over; replays of what was made from it read it.
TEST(PredictedPeaks, InputsMadeInTheStep) {
  const auto w = torch::randn({64, 64}).requires_grad_();
  expect_predicted({w}, [&](const at::Tensor& one) {
    at::Tensor h = w * one;
    for (int i = 0; i < 6; ++i) {
      at::Tensor x = torch::empty({64, 64});
      std::memset(x.mutable_data_ptr(), 0, x.nbytes());
      h = (h + x).tanh();
    }
    return h.pow(2).mean();
  });
}

TEST(PredictedPeaks, KeptValues) {
  const auto w = torch::randn({64, 64}).requires_grad_();
  expect_predicted({w}, [&](const at::Tensor& one) {
    at::Tensor h = w * one;
    for (int i = 0; i < 8; ++i) {
      h = h.tanh();
      if (i % 3 == 0) h = keep(h + 1);
      if (i % 3 == 1) keep(h);
    }
    return h.pow(2).mean();
  });
}

/// What a policy drops comes back in replays, whatever the plan, and takes memory then. These are
/// larger than what the program is given: theirs is the peak.
TEST(PredictedPeaks, WhatPoliciesDrop) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const auto block = [](const at::Tensor& x) { return torch::dropout(x.tanh().exp() + 1, 0.2, true).sigmoid(); };
  for (const Policy& policy : {Policy::drop_all(), Policy::keep_operators({"aten::exp"})}) {
    expect_predicted({w}, [&](const at::Tensor& one) {
      at::Tensor h = w * one;
      for (int i = 0; i < 6; ++i) {
        h = i % 2 == 0 ? checkpoint_with(policy, block, h.sin()) : block(h.sin());
      }
      return h.pow(2).mean();
    });
  }
}

TEST(PredictedPeaks, CheckpointsInsideOfCheckpoints) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const auto inner = [](const at::Tensor& x) { return x.tanh().exp().sin(); };
  const auto outer = [&](const at::Tensor& x) { return checkpoint(inner, x.sigmoid()).cos().tanh(); };
  expect_predicted({w}, [&](const at::Tensor& one) {
    at::Tensor h = w * one;
    for (int i = 0; i < 4; ++i) h = checkpoint(outer, h) + h;
    return h.pow(2).mean();
  });
}

/// Backward goes through the same graph again: what it has asked for once is given up once more.
TEST(PredictedPeaks, RetainedGraphs) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const auto block = [](const at::Tensor& x) { return torch::dropout(x.tanh().exp() + 1, 0.2, true).sigmoid(); };
  for (const bool policies : {false, true}) {
    for (const bool gradients_alone : {false, true}) {
      expect_predicted({w}, [&](const at::Tensor& one) {
        at::Tensor h = w * one;
        for (int i = 0; i < 6; ++i) h = policies && i % 2 == 0 ? checkpoint(block, h.sin()) : block(h.sin());
        const at::Tensor loss = h.pow(2).mean();
        if (gradients_alone) {
          torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true);
        } else {
          loss.backward({}, /*retain_graph=*/true);
        }
        return loss;
      });
    }
  }
}

/// What the user held on to while backward went through it once is given up when the user lets go.
TEST(PredictedPeaks, ResultsHeldOverTheFirstBackward) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const auto block = [](const at::Tensor& x) { return torch::gelu(x.tanh()).sigmoid(); };
  for (const bool policies : {false, true}) {
    expect_predicted({w}, [&](const at::Tensor& one) {
      at::Tensor h = w * one;
      for (int i = 0; i < 4; ++i) h = policies ? checkpoint(block, h.sin()) : block(h.sin());
      const at::Tensor loss = h.pow(2).mean();
      torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true);
      h.reset();
      return loss;
    });
  }
}

TEST(PredictedPeaks, BlocksThatWriteToTheirInput) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const auto writes = [](at::Tensor x) { return torch::gelu(x.mul_(0.9)).exp(); };
  const auto first = [](const at::Tensor& x) { return x.tanh(); };
  expect_predicted({w}, [&](const at::Tensor& one) {
    at::Tensor h = w * one;
    for (int i = 0; i < 3; ++i) h = checkpoint(writes, checkpoint(first, h) * 1.5);
    return h.pow(2).mean();
  });
}

}  // namespace
}  // namespace remat::test
