// Operators that draw from the default generator or from one of the user's.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

void dropout(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  switch (m.random().below(4)) {
    case 0:
      return m.emit("dropout of " + x.name(), [&] { return at::dropout(x.t, 0.4, true); });
    case 1:  // an empty tensor it returns itself, and so makes a leaf its own ancestor
      return m.emit("native_dropout of " + x.name(),
                    [&] { return std::get<0>(at::native_dropout(x.t.numel() == 0 ? x.t + 0 : x.t, 0.4, true)); });
    case 2:
      return m.emit("alpha_dropout of " + x.name(), [&] { return at::alpha_dropout(x.t, 0.4, true); });
    default:
      return m.emit("rrelu of " + x.name(), [&] { return at::rrelu(x.t, 0.1, 0.3, true); });
  }
}

void noise(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  switch (m.random().below(7)) {
    case 0:
      return m.emit("randn_like noise on " + x.name(), [&] { return x.t * at::randn_like(x.t); });
    case 1:
      return m.emit("rand_like noise on " + x.name(), [&] { return x.t + at::rand_like(x.t).sqrt(); });
    case 2:
      return m.emit("bernoulli mask on " + x.name(), [&] { return x.t * at::bernoulli(x.t.detach().sigmoid()); });
    case 3:
      return m.emit("normal_ noise on " + x.name(),
                    [&] { return x.t * at::empty_like(x.t).normal_(0, 1, m.generator()); });
    case 4:
      return m.emit("uniform_ noise on " + x.name(),
                    [&] { return x.t / at::empty_like(x.t).uniform_(1, 2, m.generator()); });
    case 5:
      return m.emit("own generator's rand on " + x.name(), [&] {
        return (x.t * at::rand(x.t.sizes(), m.generator(), x.t.options().requires_grad(false))).cos();
      });
    default:
      return m.emit("exponential noise on " + x.name(),
                    [&] { return x.t * at::empty_like(x.t).exponential_(1.0).clamp_max_(3); });
  }
}

void choice(Machine& m) {
  const Slot x = m.pick_float(2, 2);
  if (!x || x.t.numel() == 0) return;
  switch (m.random().below(3)) {
    case 0:
      return m.emit("multinomial rows of " + x.name(),
                    [&] { return x.t.gather(1, at::multinomial(x.t.detach().to(at::kDouble).softmax(1), 2, true)); });
    case 1:
      return m.emit("randperm of " + x.name(),
                    [&] { return x.t.index_select(0, at::randperm(x.t.size(0), m.options(at::kLong))); });
    default:
      return m.emit("random_ rows of " + x.name(),
                    [&] { return x.t.index_select(0, at::empty({2}, m.options(at::kLong)).random_(0, x.t.size(0))); });
  }
}

void reseed(Machine& m) {
  m.act("manual_seed", [&] { torch::manual_seed(static_cast<uint64_t>(m.random().below(100))); });
}

}  // namespace

std::vector<Operator> random_operators() {
  return {{"dropout", 7, dropout}, {"noise", 8, noise}, {"choice", 3, choice}, {"reseed", 1, reseed}};
}

}  // namespace remat::fuzz
