// Writes: to tensors, through views, to leaves and buffers, through aliases, by foreach and out= variants.
#include <optional>

#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// Writes to `x` in one of many ways. `other` has a shape that broadcasts to x's.
void write(Machine& m, const Tensor& x, const Tensor& other, const std::string& name) {
  const double c = m.random().real();
  const auto act = [&](const char* what, auto&& run) { m.act(name + "." + what, run); };
  switch (m.random().below(m.draws() ? 18 : 16)) {
    case 0:
      return act("add_", [&] { x.add_(other, c); });
    case 1:
      return act("mul_", [&] { x.mul_(0.5); });
    case 2:
      return act("mul_(other)", [&] { x.mul_(other); });
    case 3:
      return act("relu_", [&] { x.relu_(); });
    case 4:
      return act("sigmoid_", [&] { x.sigmoid_(); });
    case 5:
      return act("tanh_", [&] { x.tanh_(); });
    case 6:
      return act("clamp_", [&] { x.clamp_(-c, c); });
    case 7:
      return act("masked_fill_", [&] { x.masked_fill_(x.detach() > c, 0.1); });
    case 8:
      return act("copy_", [&] { x.copy_(other); });
    case 9:
      return act("zero_", [&] { x.zero_(); });
    case 10:
      return act("fill_", [&] { x.fill_(c); });
    case 11:
      return act("add_(itself)", [&] { x.add_(x); });
    case 12:
      return act("addcmul_", [&] { x.addcmul_(other, other, 0.3); });
    case 13:
      return act("sin_", [&] { x.sin_(); });
    case 14:
      return act("sub_(scalar)", [&] { x.sub_(c); });
    case 15:
      return act("leaky_relu_", [&] { at::leaky_relu_(const_cast<Tensor&>(x), 0.2); });
    case 16:
      return act("normal_", [&] { x.normal_(0, 0.5); });
    default:
      return act("div_", [&] { x.div_(other.abs() + 1); });
  }
}

void write_whole(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && !s.leaf; });
  if (!x) return;
  const Slot other = m.pick_broadcastable(x);
  write(m, x.t, other.t, x.name());
}

void write_part(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && !s.leaf && s.t.dim() > 0 && s.t.numel() > 0; });
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim());
  const int64_t from = m.random().below(x.t.size(dim));
  switch (m.random().below(4)) {
    case 0: {
      const auto part = x.t.narrow(dim, from, x.t.size(dim) - from);
      return write(m, part, x.t.mean(), x.name() + ".narrow(" + std::to_string(dim) + ")");
    }
    case 1: {
      const auto part = x.t.select(dim, from);
      return write(m, part, x.t.mean(), x.name() + ".select(" + std::to_string(dim) + ")");
    }
    case 2: {
      const auto part = x.t.transpose(0, dim).slice(0, 0, std::nullopt, 2);
      return write(m, part, at::scalar_tensor(0.7), x.name() + ".transpose.slice");
    }
    default: {
      const auto part = x.t.dim() > 1 ? x.t.select(0, 0).narrow(0, 0, 1) : x.t.view_as(x.t);
      return write(m, part, at::scalar_tensor(0.7), x.name() + ".view of view");
    }
  }
}

/// Undefined memory is filled slice by slice, in any order; what is read of it was.
void fill_slices(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && s.t.dim() > 0 && s.t.numel() > 0; });
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim() + 1);
  const int64_t count = 1 + m.random().below(3);
  const int64_t read = 1 + m.random().below(count);
  const bool down = m.random().chance(50);
  const int64_t filled = m.random().below(2 * count);  // this slice with a number, if there is one
  m.emit("slices of " + x.name(), [&] {
    auto sizes = x.t.sizes().vec();
    sizes.insert(sizes.begin() + dim, count);
    const auto made = at::empty(sizes, x.t.options().requires_grad(false));
    for (int64_t i = 0; i < count; ++i) {
      const auto slice = made.select(dim, down ? count - 1 - i : i);
      i == filled ? slice.fill_(0.5) : slice.copy_(x.t * (1 + i));
    }
    const auto early = made.narrow(dim, 0, read).sin().sum(dim);
    return early + made.mul(0.5).sum(dim).tanh();
  });
}

void index_write(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && !s.leaf && s.t.dim() > 0 && s.t.numel() > 0; });
  if (!x) return;
  const auto rows = m.indices(x.t.size(0), {2});
  switch (m.random().below(5)) {
    case 0:
      return m.act(x.name() + ".index_put_", [&] { x.t.index_put_({rows}, x.t.detach().select(0, 0)); });
    case 1:
      return m.act(x.name() + ".index_fill_", [&] { x.t.index_fill_(0, rows, 0.3); });
    case 2:
      return m.act(x.name() + ".index_add_", [&] { x.t.index_add_(0, rows, x.t.index_select(0, rows)); });
    case 3:
      return m.act(x.name() + ".scatter_", [&] { x.t.scatter_(0, at::zeros_like(x.t, at::kLong), 0.2); });
    default:
      return m.act(x.name() + ".masked_scatter_", [&] { x.t.masked_scatter_(x.t.detach() > 0, x.t.detach().cos()); });
  }
}

void write_leaf(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && s.leaf; });
  if (!x) return;
  std::optional<torch::NoGradGuard> no_grad;
  if (m.random().chance(85)) no_grad.emplace();
  write(m, x.t, at::scalar_tensor(0.5), x.name() + (no_grad ? " (no_grad) " : ""));
}

void write_alias(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t); });
  if (!x) return;
  if (m.random().chance(50)) {
    write(m, x.t.detach(), at::scalar_tensor(0.5), x.name() + ".detach()");
  } else {
    write(m, x.t.variable_data(), at::scalar_tensor(0.5), x.name() + ".data");
  }
}

void foreach_write(Machine& m) {
  std::vector<Tensor> list;
  std::string text;
  for (uint64_t i = 0; i < 3; ++i) {
    const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && !s.leaf; }, i);
    if (!x) return;
    list.push_back(x.t);
    text.append(" ").append(x.name());
  }
  switch (m.random().below(4)) {
    case 0:
      return m.act("_foreach_mul_" + text, [&] { at::_foreach_mul_(list, 0.9); });
    case 1:
      return m.act("_foreach_add_" + text, [&] { at::_foreach_add_(list, list, 0.5); });
    case 2:
      return m.emit_all("_foreach_sin" + text, [&] { return at::_foreach_sin(list); });
    default:
      return m.act("_foreach_addcmul_" + text, [&] { at::_foreach_addcmul_(list, list, list, 0.1); });
  }
}

void out_variant(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  if (m.random().chance(50)) {
    m.emit("sin_out(fresh, " + x.name() + ")", [&] {
      const torch::NoGradGuard no_grad;
      auto out = at::empty({0}, x.t.options());
      at::sin_out(out, x.t);
      return out;
    });
  } else {
    m.emit("empty_like and copy_ " + x.name(), [&] { return at::empty_like(x.t).copy_(x.t).mul_(2); });
  }
}

void buffer(Machine& m) {
  // A running average: read by the program, then written without gradient.
  const Slot x = m.pick_float(1, 4);
  if (!x) return;
  const Slot average = m.parameter(x.t.sizes().vec(), x.t.scalar_type());
  m.emit("use and update running average " + average.name() + " of " + x.name(), [&] {
    auto result = x.t * average.t.detach();
    average.t.detach().mul_(0.9).add_(x.t.detach(), 0.1);
    return result.sin();
  });
}

void resize(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return is_float(s.t) && !s.leaf && !s.t.requires_grad(); });
  if (!x) return;
  if (m.random().chance(50)) {
    m.act(x.name() + ".set_(a copy)", [&] { x.t.set_(x.t.clone().mul_(1.5)); });
  } else {
    m.act(x.name() + ".resize_ and fill_", [&] { x.t.resize_({2, 3}).fill_(0.4); });
  }
}

}  // namespace

std::vector<Operator> inplace_operators() {
  return {{"write", 10, write_whole},      {"write part", 8, write_part},
          {"index write", 4, index_write}, {"fill slices", 4, fill_slices},
          {"write leaf", 2, write_leaf},   {"write alias", 3, write_alias},
          {"foreach", 3, foreach_write},   {"out variant", 3, out_variant},
          {"buffer", 3, buffer},           {"resize", 1, resize}};
}

}  // namespace remat::fuzz
