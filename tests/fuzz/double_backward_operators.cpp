// Graphs made during backward: gradient penalties, products with Hessians, parameters after a step of descent.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// Two dense layers with parameters of the program's.
struct Net {
  Slot a, b;
  explicit Net(Machine& m, int64_t inputs, at::ScalarType type)
      : a(m.parameter({m.scale(), inputs}, type)), b(m.parameter({3, m.scale()}, type)) {}
  Tensor operator()(const Tensor& x) const { return at::linear(at::linear(x, a.t).tanh().exp(), b.t).sin(); }
  std::vector<Tensor> trained() const {
    std::vector<Tensor> list;
    for (const auto& t : {a.t, b.t}) {
      if (t.requires_grad() && (list.empty() || !t.is_same(list[0]))) list.push_back(t);
    }
    return list;
  }
};

Slot pick_rows(Machine& m) {
  return m.pick([](const Slot& s) { return is_float(s.t) && s.t.dim() == 2 && s.t.numel() > 0; });
}

/// Runs what differentiates, as a backward pass: an error there ends the program.
void emit(Machine& m, const std::string& text, const std::function<Tensor()>& make) {
  m.refill();
  m.backward(text, [&] {
    const Tensor result = make();
    m.emit("its result", [&] { return result; });
  });
}

/// WGAN-GP's: the norm of a critic's gradient by its input.
void penalty(Machine& m) {
  const Slot x = pick_rows(m);
  if (!x) return;
  const Net critic(m, x.t.size(1), x.t.scalar_type());
  emit(m, "gradient penalty at " + x.name(), [&] {
    const auto mixed = (x.t.detach() * 0.7 + 0.1).requires_grad_();
    const auto g = torch::autograd::grad({critic(mixed).sum()}, {mixed}, {}, true, true)[0];
    return (g.norm(2, {1}, true) - 1).pow(2) * 1.0;
  });
}

void hessian_product(Machine& m) {
  const Slot x = pick_rows(m);
  if (!x) return;
  const Net net(m, x.t.size(1), x.t.scalar_type());
  const auto parameters = net.trained();
  if (parameters.empty()) return;
  const bool create = m.random().chance(50);
  emit(m, "product with a Hessian at " + x.name() + (create ? " with graph" : ""), [&] {
    const auto first = torch::autograd::grad({net(x.t).pow(2).mean()}, parameters, {}, true, true);
    Tensor product = (first[0] * first[0].detach().cos()).sum();
    for (size_t i = 1; i < first.size(); ++i) product = product + first[i].sin().sum();
    const auto second = torch::autograd::grad({product}, {parameters[0]}, {}, true, create, true)[0];
    return second.defined() ? second.tanh() : product;
  });
}

/// MAML's: a step of descent that is differentiated through.
void adapted(Machine& m) {
  const Slot x = pick_rows(m);
  if (!x) return;
  Net net(m, x.t.size(1), x.t.scalar_type());
  if (net.trained().size() < 2) return;
  const int64_t steps = m.random().between(1, 3);
  emit(m, std::to_string(steps) + " adapted steps at " + x.name(), [&] {
    for (int64_t i = 0; i < steps; ++i) {
      const auto g = torch::autograd::grad({net(x.t).pow(2).mean()}, {net.a.t, net.b.t}, {}, true, true);
      net.a.t = net.a.t - 0.1 * g[0];
      net.b.t = net.b.t - 0.1 * g[1];
    }
    return net(x.t.detach());
  });
}

/// The third derivative of a chain of elementwise operators.
void third(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  emit(m, "third derivative at " + x.name(), [&] {
    auto at = x.t.detach().clone().requires_grad_();
    Tensor y = (at.sin() * at).exp().tanh();
    for (int i = 0; i < 3; ++i) y = torch::autograd::grad({y.sum()}, {at}, {}, true, true)[0];
    return y * x.t;
  });
}

}  // namespace

std::vector<Operator> double_backward_operators() {
  return {
      {"penalty", 3, penalty}, {"hessian product", 3, hessian_product}, {"adapted", 2, adapted}, {"third", 1, third}};
}

}  // namespace remat::fuzz
