// torch::autograd::Function: what users save, write and leave undifferentiated.
#include "support/compare.h"

namespace remat::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Saves an input, an intermediate, its result and plain numbers.
struct Everything : torch::autograd::Function<Everything> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w, int64_t power) {
    const auto middle = (x * w).tanh();
    const auto result = middle.pow(power);
    ctx->save_for_backward({x, w, middle, result});
    ctx->saved_data["power"] = power;
    ctx->saved_data["scratch"] = x.sum();  // a tensor that autograd does not know of
    return result;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto s = ctx->get_saved_variables();
    const auto power = ctx->saved_data["power"].toInt();
    const auto d = grads[0] * power * s[2].pow(power - 1) * (1 - s[2] * s[2]) + 0 * s[3];
    return {d * s[1] + 0 * ctx->saved_data["scratch"].toTensor(), d * s[0], at::Tensor()};
  }
};

TEST(CustomFunction, SavesInputsIntermediatesResultsAndNumbers) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_(), w = torch::randn({5, 7}).requires_grad_();
    auto h = x.sin();
    auto y = Everything::apply(h, w, 3);
    return backward_of({x, w}, (Everything::apply(y.exp(), w, 2) * y).sum());
  });
}

struct InPlace : torch::autograd::Function<InPlace> {
  static at::Tensor forward(AutogradContext* ctx, at::Tensor x) {
    const auto mask = x > 0;
    x.mul_(mask).add_(0.25);
    ctx->mark_dirty({x});
    ctx->save_for_backward({mask});
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * ctx->get_saved_variables()[0]};
  }
};

TEST(CustomFunction, MarksItsArgumentDirty) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_();
    auto h = x * 2;
    auto y = InPlace::apply(h);
    auto z = (y * y.sin()) + 1;
    return backward_of({x}, (InPlace::apply(z.view({35})) * 3).cos().sum());
  });
}

struct Top : torch::autograd::Function<Top> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x) {
    auto [values, indices] = x.max(1);
    ctx->mark_non_differentiable({indices});
    ctx->save_for_backward({indices});
    ctx->saved_data["size"] = x.size(1);
    return {values, indices};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto indices = ctx->get_saved_variables()[0];
    const auto size = ctx->saved_data["size"].toInt();
    return {at::zeros({indices.size(0), size}).scatter(1, indices.unsqueeze(1), grads[0].unsqueeze(1))};
  }
};

TEST(CustomFunction, ResultsWithoutGradient) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_();
    auto out = Top::apply(x.exp());
    auto picked = x.gather(1, out[1].unsqueeze(1));
    return backward_of({x}, (out[0] * picked.squeeze(1).sin()).sum());
  });
}

struct NoisyForward : torch::autograd::Function<NoisyForward> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const auto noise = at::randn_like(x);
    ctx->save_for_backward({noise});
    return x * noise;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    // Draws in backward too: a replay before this must leave the generator where plain has it.
    return {grads[0] * ctx->get_saved_variables()[0] + at::randn_like(grads[0]) * 1e-3};
  }
};

TEST(CustomFunction, DrawsRandomNumbersInForwardAndBackward) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_();
    auto h = at::dropout(x.sin(), 0.4, true);
    auto y = NoisyForward::apply(h).exp();
    return backward_of({x}, (NoisyForward::apply(y) * h).sum());
  });
}

struct PassThrough : torch::autograd::Function<PassThrough> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

TEST(CustomFunction, ReturnsAViewOfItsArgument) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_();
    auto h = x.exp();
    auto y = PassThrough::apply(h);
    return backward_of({x}, (y * h.sin() * PassThrough::apply(y.tanh())).sum());
  });
}

/// Forward builds a graph of its own and differentiates it.
struct GradInside : torch::autograd::Function<GradInside> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    at::Tensor derivative;
    {
      const torch::AutoGradMode grad_mode(true);
      auto inner = x.detach().requires_grad_();
      derivative = torch::autograd::grad({(inner.sin() * inner).sum()}, {inner})[0];
    }
    ctx->save_for_backward({derivative});
    return derivative * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * ctx->get_saved_variables()[0]};
  }
};

TEST(CustomFunction, DifferentiatesInsideForward) {
  expect_exact([] {
    auto x = torch::randn({5, 7}).requires_grad_();
    return backward_of({x}, (GradInside::apply(x.exp()) * x.cos()).sum());
  });
}

}  // namespace
}  // namespace remat::test
