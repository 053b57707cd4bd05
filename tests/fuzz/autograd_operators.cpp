// What programs do with autograd itself: detach, partial gradients, double backward, hooks, custom functions.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x * sin(x), with a saved input, a saved result and a saved number.
struct SineProduct : torch::autograd::Function<SineProduct> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double scale) {
    const auto sine = x.sin();
    ctx->save_for_backward({x, sine});
    ctx->saved_data["scale"] = scale;
    return x * sine * scale;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto scale = ctx->saved_data["scale"].toDouble();
    return {grads[0] * (saved[1] + saved[0] * saved[0].cos()) * scale, Tensor()};
  }
};

/// Squares its argument in place.
struct SquareInPlace : torch::autograd::Function<SquareInPlace> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    const auto old = x.clone();
    x.mul_(x);
    ctx->mark_dirty({x});
    ctx->save_for_backward({old});
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * 2 * ctx->get_saved_variables()[0]};
  }
};

void custom(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  if (m.random().chance(70)) {
    m.emit("SineProduct(" + x.name() + ")", [&] { return SineProduct::apply(x.t, 0.7); });
  } else {
    m.emit("SquareInPlace(" + x.name() + " + 0)", [&] { return SquareInPlace::apply(x.t + 0); });
  }
}

void detach(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  switch (m.random().below(4)) {
    case 0:
      return m.emit("detach " + x.name(), [&] { return x.t.detach(); });
    case 1:
      return m.emit("no_grad part of " + x.name(), [&] {
        const torch::NoGradGuard no_grad;
        return x.t.sin() * x.t;
      });
    case 2:
      return m.emit("straight-through " + x.name(), [&] { return x.t + (x.t.round() - x.t).detach(); });
    default:
      return m.emit("new root from " + x.name(), [&] { return x.t.detach().clone().requires_grad_(); });
  }
}

void hook(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && s.t.requires_grad() && !s.leaf; });
  if (!x) return;
  m.act("hook on " + x.name(), [&] { x.t.register_hook([](const Tensor& g) { return g * 0.5; }); });
}

void partial_backward(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && s.t.requires_grad() && !s.leaf; });
  if (!x) return;
  const bool retain = m.random().chance(75);
  m.refill();
  m.backward("backward of " + x.name() + (retain ? " retained" : ""), [&] { (x.t * x.t).sum().backward({}, retain); });
}

void partial_grad(Machine& m) {
  const Slot y = m.pick([](const Slot& s) { return is_float(s.t) && s.t.requires_grad() && !s.leaf; });
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && s.t.requires_grad(); }, 1);
  if (!x || !y) return;
  const bool create = m.random().chance(60) && !m.inference_backward();
  m.refill();
  m.backward("grad of " + y.name() + " by " + x.name() + (create ? " with graph" : ""), [&] {
    const auto grads = torch::autograd::grad({y.t.sum()}, {x.t}, {}, true, create, true);
    if (grads[0].defined()) {
      m.emit("that gradient", [&] { return create ? grads[0] * 1.0 : grads[0]; });
    }
  });
}

void keep(Machine& m) {
  const Slot x = m.pick_float();
  if (x) m.emit("remat::keep(" + x.name() + ")", [&] { return remat::keep(x.t); });
}

void checkpointed(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  m.emit("checkpoint of a block on " + x.name(), [&] {
    const auto inner_block = [](const Tensor& b) { return (b.sin() * b).tanh(); };
    const auto block = [&](const Tensor& a) {
      const auto inner = m.with_remat ? remat::checkpoint(inner_block, a) : inner_block(a);
      return at::dropout(inner * a, 0.2, m.draws()).sigmoid() * inner;
    };
    return m.with_remat ? remat::checkpoint(block, x.t) : block(x.t);
  });
}

}  // namespace

std::vector<Operator> autograd_operators() {
  return {{"custom", 3, custom},
          {"detach", 5, detach},
          {"hook", 2, hook},
          {"partial backward", 2, partial_backward},
          {"partial grad", 2, partial_grad},
          {"keep", 1, keep},
          {"checkpoint", 2, checkpointed}};
}

}  // namespace remat::fuzz
