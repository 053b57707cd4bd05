// Matrix products, convolutions, normalization, attention, embedding, recurrent layers, losses.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

void matmul(Machine& m) {
  const Slot a = m.pick_float(1, 4);
  if (!a) return;
  const int64_t inner = a.t.size(-1);
  const Slot b = m.pick(
      [&](const Slot& s) {
        return is_float(s.t) && s.t.scalar_type() == a.t.scalar_type() && s.t.dim() == 2 && s.t.size(0) == inner;
      },
      1);
  if (b && m.random().chance(60)) {
    return m.emit("matmul(" + a.name() + ", " + b.name() + ")", [&] { return a.t.matmul(b.t); });
  }
  if (a.t.dim() >= 2 && m.random().chance(40)) {
    return m.emit(a.name() + " by itself transposed", [&] { return a.t.matmul(a.t.transpose(-1, -2)); });
  }
  const int64_t outputs = m.random().between(1, m.scale());
  const Slot w = m.parameter({outputs, inner}, a.t.scalar_type());
  const Slot bias = m.random().chance(60) ? m.parameter({outputs}, a.t.scalar_type()) : Slot();
  m.emit("linear(" + a.name() + ", " + w.name() + ", " + bias.name() + ")",
         [&] { return at::linear(a.t, w.t, bias.t); });
}

void addmm(Machine& m) {
  const Slot a = m.pick_float(3, 3);
  if (!a) return;
  m.emit("baddbmm of " + a.name(), [&] {
    const auto t = a.t.transpose(1, 2);
    return at::baddbmm(at::ones({1}, a.t.options()), a.t, t, 0.5, 0.25);
  });
}

void convolution(Machine& m) {
  const Slot x = m.pick_float(3, 4);
  if (!x || x.t.numel() == 0) return;
  const int64_t channels = x.t.size(1);
  if (x.t.dim() == 3) {
    const Slot w = m.parameter({3, channels, 2}, x.t.scalar_type());
    return m.emit("conv1d(" + x.name() + ", " + w.name() + ")", [&] { return at::conv1d(x.t, w.t, {}, 1, 1); });
  }
  if (m.random().chance(40)) {
    const Slot w = m.parameter({channels, 2, 2, 2}, x.t.scalar_type());
    return m.emit("conv_transpose2d(" + x.name() + ", " + w.name() + ")",
                  [&] { return at::conv_transpose2d(x.t, w.t); });
  }
  const Slot w = m.parameter({2, channels, 3, 3}, x.t.scalar_type());
  const Slot b = m.parameter({2}, x.t.scalar_type());
  m.emit("conv2d(" + x.name() + ", " + w.name() + ")", [&] { return at::conv2d(x.t, w.t, b.t, 1, 1); });
}

void pooling(Machine& m) {
  const Slot x = m.pick_float(3, 4);
  if (!x || x.t.numel() == 0) return;
  switch (m.random().below(4)) {
    case 0:
      return m.emit("max_pool2d " + x.name(), [&] { return at::max_pool2d(x.t, {2, 2}, {1, 1}, {1, 1}); });
    case 1:
      return m.emit("avg_pool2d " + x.name(), [&] { return at::avg_pool2d(x.t, {2, 2}, {1, 1}, {1, 1}); });
    case 2:
      return m.emit("adaptive_avg_pool2d " + x.name(), [&] { return at::adaptive_avg_pool2d(x.t, {2, 2}); });
    default:
      return m.emit("upsample " + x.name(), [&] {
        const auto y = x.t.dim() == 3 ? x.t.unsqueeze(0) : x.t;
        return at::upsample_nearest2d(y, {4, 4});
      });
  }
}

void normalization(Machine& m) {
  const Slot x = m.pick_float(2, 4);
  if (!x || x.t.numel() == 0) return;
  const auto type = x.t.scalar_type();
  const int64_t last = x.t.size(-1);
  const int64_t channels = x.t.size(1);
  switch (m.random().below(5)) {
    case 0: {
      const Slot w = m.parameter({last}, type), b = m.parameter({last}, type);
      return m.emit("layer_norm " + x.name(), [&] { return at::layer_norm(x.t, {last}, w.t, b.t); });
    }
    case 1:
      return m.emit("group_norm " + x.name(), [&] { return at::group_norm(x.t, 1); });
    case 2:
      return m.emit("instance_norm " + x.name(),
                    [&] { return at::instance_norm(x.t, {}, {}, {}, {}, true, 0.1, 1e-5, false); });
    case 3:
      return m.emit("rms_norm " + x.name(), [&] { return at::rms_norm(x.t, {last}); });
    default: {
      const Slot w = m.parameter({channels}, type), b = m.parameter({channels}, type);
      const bool training = m.random().chance(75);
      return m.emit(std::string("batch_norm ") + (training ? "" : "eval ") + x.name(), [&] {
        // Statistics that are written now and read by what follows.
        const auto mean = at::zeros({channels}, x.t.options().requires_grad(false));
        const auto variance = at::ones({channels}, x.t.options().requires_grad(false));
        auto y = at::batch_norm(x.t, w.t, b.t, mean, variance, training, 0.1, 1e-5, false);
        return y + (mean + variance).mean();
      });
    }
  }
}

void attention(Machine& m) {
  const Slot x = m.pick_float(3, 4);
  if (!x || x.t.numel() == 0) return;
  const double dropout = m.random().chance(30) && m.draws() ? 0.3 : 0.0;
  const bool causal = m.random().chance(50);
  m.emit("attention over " + x.name() + (dropout > 0 ? " with dropout" : ""), [&] {
    const auto q = x.t.dim() == 3 ? x.t.unsqueeze(0) : x.t;
    return at::scaled_dot_product_attention(q, q.sin(), q.cos(), {}, dropout, causal);
  });
}

void embedding(Machine& m) {
  const Slot table = m.parameter({7, m.scale()}, at::kFloat);
  if (m.random().chance(70)) {
    m.emit("embedding in " + table.name(), [&] { return at::embedding(table.t, m.indices(7, {2, 3}), 2); });
  } else {
    m.emit("embedding_bag in " + table.name(), [&] {
      const auto numbers = m.options(at::kLong);
      return std::get<0>(at::embedding_bag(table.t, at::arange(6, numbers), at::arange(0, 6, 2, numbers)));
    });
  }
}

void recurrent(Machine& m) {
  const Slot x =
      m.pick([](const Slot& s) { return s.t.scalar_type() == at::kFloat && s.t.dim() == 3 && s.t.numel() > 0; });
  if (!x) return;
  const int64_t inputs = x.t.size(2);
  const int64_t hidden = 3;
  const int64_t gates = m.random().chance(50) ? 4 : 3;
  const Slot a = m.parameter({gates * hidden, inputs}, at::kFloat),
             b = m.parameter({gates * hidden, hidden}, at::kFloat);
  const auto state = at::zeros({1, x.t.size(1), hidden}, m.options(at::kFloat));
  if (gates == 4) {
    m.emit("lstm over " + x.name(), [&] {
      return std::get<0>(at::lstm(x.t, {state, state}, {a.t, b.t}, false, 1, 0.0, true, false, false));
    });
  } else {
    m.emit("gru over " + x.name(), [&] {
      return std::get<0>(at::gru(x.t, state, {a.t, b.t}, false, 1, 0.0, true, false, false));
    });
  }
}

void cross_entropy(Machine& m) {
  const Slot x = m.pick_float(2, 2);
  if (!x || x.t.numel() == 0) return;
  const auto target = m.indices(x.t.size(1), {x.t.size(0)});
  m.emit("cross_entropy of " + x.name(), [&] { return at::cross_entropy_loss(x.t, target); });
}

}  // namespace

std::vector<Operator> layer_operators() {
  return {{"matmul", 12, matmul},
          {"addmm", 3, addmm},
          {"convolution", 5, convolution},
          {"pooling", 3, pooling},
          {"normalization", 7, normalization},
          {"attention", 4, attention},
          {"embedding", 3, embedding},
          {"recurrent", 2, recurrent},
          {"cross entropy", 2, cross_entropy}};
}

}  // namespace remat::fuzz
