// Elementwise operators, reductions, comparisons, casts, complex numbers.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

struct Unary {
  const char* name;
  Tensor (*run)(const Tensor&);
};
const Unary kUnaries[] = {
    {"sin", [](const Tensor& x) { return x.sin(); }},
    {"exp", [](const Tensor& x) { return x.clamp(-4, 4).exp(); }},
    {"tanh", [](const Tensor& x) { return x.tanh(); }},
    {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
    {"relu", [](const Tensor& x) { return x.relu(); }},
    {"gelu", [](const Tensor& x) { return at::gelu(x); }},
    {"gelu tanh", [](const Tensor& x) { return at::gelu(x, "tanh"); }},
    {"silu", [](const Tensor& x) { return at::silu(x); }},
    {"softplus", [](const Tensor& x) { return at::softplus(x); }},
    {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.1); }},
    {"elu", [](const Tensor& x) { return at::elu(x); }},
    {"hardswish", [](const Tensor& x) { return at::hardswish(x); }},
    {"abs sqrt", [](const Tensor& x) { return (x.abs() + 0.1).sqrt(); }},
    {"rsqrt", [](const Tensor& x) { return (x * x + 1).rsqrt(); }},
    {"log1p", [](const Tensor& x) { return x.abs().log1p(); }},
    {"square", [](const Tensor& x) { return x.clamp(-9, 9).pow(2); }},
    {"reciprocal", [](const Tensor& x) { return (x.abs() + 1).reciprocal(); }},
    {"erf", [](const Tensor& x) { return x.erf(); }},
    {"sign", [](const Tensor& x) { return x.sign() * x; }},
    {"clone", [](const Tensor& x) { return x.clone(); }},
    {"neg", [](const Tensor& x) { return -x; }},
    {"nan_to_num", [](const Tensor& x) { return x.nan_to_num(); }},
    {"logit", [](const Tensor& x) { return x.sigmoid().logit(1e-3); }},
    {"frac", [](const Tensor& x) { return x.frac(); }},
    {"log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); }},
    {"polygamma", [](const Tensor& x) { return (x.abs() + 1).lgamma(); }},
};

struct Binary {
  const char* name;
  Tensor (*run)(const Tensor&, const Tensor&);
};
const Binary kBinaries[] = {
    {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
    {"sub", [](const Tensor& a, const Tensor& b) { return a.sub(b, 0.5); }},
    {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
    {"div", [](const Tensor& a, const Tensor& b) { return a / (b.abs() + 0.5); }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); }},
    {"atan2", [](const Tensor& a, const Tensor& b) { return at::atan2(a, b); }},
    {"where", [](const Tensor& a, const Tensor& b) { return at::where(a > b, a.sin(), b.cos()); }},
    {"hypot", [](const Tensor& a, const Tensor& b) { return at::hypot(a, b + 1); }},
    {"lerp", [](const Tensor& a, const Tensor& b) { return at::lerp(a, b.to(a.scalar_type()), 0.3); }},
    {"addcmul", [](const Tensor& a, const Tensor& b) { return at::addcmul(a, a, b, 0.5); }},
    {"masked_fill", [](const Tensor& a, const Tensor& b) { return a.masked_fill(b > 0, 0.25); }},
    {"fmod", [](const Tensor& a, const Tensor& b) { return at::fmod(a, b.abs() + 1); }},
    {"mse_loss", [](const Tensor& a, const Tensor& b) { return at::mse_loss(a, b); }},
    {"xlogy", [](const Tensor& a, const Tensor& b) { return at::xlogy(a, b.abs() + 1); }},
    {"copysign", [](const Tensor& a, const Tensor& b) { return at::copysign(a, b); }},
    {"huber_loss", [](const Tensor& a, const Tensor& b) { return at::huber_loss(a, b, 0); }},
};

void unary(Machine& m) {
  const Slot x = m.pick_float();
  const auto& op = kUnaries[m.random().below(std::size(kUnaries))];
  if (x) m.emit(std::string(op.name) + "(" + x.name() + ")", [&] { return op.run(x.t); });
}

void binary(Machine& m) {
  const Slot a = m.pick_float();
  if (!a) return;
  const Slot b = m.pick_broadcastable(a);
  const auto& op = kBinaries[m.random().below(std::size(kBinaries))];
  m.emit(std::string(op.name) + "(" + a.name() + ", " + b.name() + ")", [&] { return op.run(a.t, b.t); });
}

void scalar(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const double c = m.random().real() * 2 - 1;
  switch (m.random().below(5)) {
    case 0:
      return m.emit(x.name() + " * " + std::to_string(c), [&] { return x.t * c; });
    case 1:
      return m.emit(std::to_string(c) + " - " + x.name(), [&] { return c - x.t; });
    case 2:
      return m.emit(x.name() + " * wrapped number", [&] { return x.t * at::scalar_tensor(c); });
    case 3:
      return m.emit("threshold " + x.name(), [&] { return at::threshold(x.t, c, 0.1); });
    default:
      return m.emit("2 ** " + x.name(), [&] { return at::pow(2, x.t.clamp(-5, 5)); });
  }
}

void reduction(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const int64_t dim = x.t.dim() == 0 ? 0 : m.random().below(x.t.dim());
  const bool keep = m.random().chance(60);
  const std::string on = " of " + x.name() + " over " + std::to_string(dim) + (keep ? " kept" : "");
  switch (m.random().below(13)) {
    case 0:
      return m.emit("sum" + on, [&] { return x.t.sum(dim, keep); });
    case 1:
      return m.emit("mean" + on, [&] { return x.t.mean(dim, keep); });
    case 2:
      return m.emit("amax" + on, [&] { return x.t.amax(dim, keep); });
    case 3:
      return m.emit("max" + on, [&] { return std::get<0>(x.t.max(dim, keep)); });
    case 4:
      return m.emit("var" + on, [&] { return x.t.var(dim, false, keep); });
    case 5:
      return m.emit("norm" + on, [&] { return (x.t + 0.01).norm(2, dim, keep); });
    case 6:
      return m.emit("logsumexp" + on, [&] { return x.t.logsumexp(dim, keep); });
    case 7:
      return m.emit("softmax" + on, [&] { return x.t.softmax(dim); });
    case 8:
      return m.emit("log_softmax" + on, [&] { return x.t.log_softmax(dim); });
    case 9:
      return m.emit("cumsum" + on, [&] { return x.t.cumsum(dim); });
    case 10:
      return m.emit("prod" + on, [&] { return x.t.tanh().prod(dim, keep); });
    case 11:
      return m.emit("cumprod" + on, [&] { return x.t.tanh().cumprod(dim); });
    default:
      return m.emit("sum of all of " + x.name(), [&] { return x.t.sum(); });
  }
}

void ordering(Machine& m) {
  const Slot x = m.pick_float(1, 4);
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim());
  const int64_t k = std::max<int64_t>(1, x.t.size(dim) / 2);
  switch (m.random().below(4)) {
    case 0:
      return m.emit_all("topk of " + x.name(), [&] {
        auto [values, indices] = x.t.topk(k, dim);
        return std::vector<Tensor>{values, x.t.gather(dim, indices)};
      });
    case 1:
      return m.emit_all("sort " + x.name(), [&] {
        auto [values, indices] = x.t.sort(dim);
        return std::vector<Tensor>{values, indices};
      });
    case 2:
      return m.emit("median of " + x.name(), [&] { return std::get<0>(x.t.median(dim, true)); });
    default:
      return m.emit("cummax of " + x.name(), [&] { return std::get<0>(x.t.cummax(dim)); });
  }
}

void cast(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const at::ScalarType types[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kFloat};
  const auto type = types[m.random().below(4)];
  m.emit(x.name() + " as " + c10::toString(type), [&] { return x.t.to(type); });
}

void complex(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return s.t.scalar_type() == at::kFloat; });
  if (!x) return;
  switch (m.random().below(4)) {
    case 0:
      return m.emit("abs(complex conj " + x.name() + ")",
                    [&] { return (at::complex(x.t, x.t.sin()).conj() * at::complex(x.t, x.t)).abs(); });
    case 1:
      return m.emit("imag of complex exp " + x.name(), [&] { return at::imag(at::complex(x.t, x.t).tanh()); });
    case 2:
      return m.emit("view_as_real conj product " + x.name(), [&] {
        const auto z = at::complex(x.t, x.t + 1);
        return at::view_as_real((z * z.conj()).resolve_conj());
      });
    default:
      return m.emit("negative view of imag conj " + x.name(), [&] {
        const auto z = at::complex(x.t, x.t * 2).conj();
        return at::imag(z) * at::real(z);
      });
  }
}

void data_dependent(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  m.emit("branch on the sum of " + x.name(),
         [&] { return x.t.sum().item<double>() > 0 ? x.t.mul(1.5).sigmoid() : (x.t.cos() - x.t); });
}

}  // namespace

std::vector<Operator> pointwise_operators() {
  return {{"unary", 22, unary},      {"binary", 20, binary},
          {"scalar", 5, scalar},     {"reduction", 12, reduction},
          {"ordering", 4, ordering}, {"cast", 5, cast},
          {"complex", 3, complex},   {"data dependent", 3, data_dependent}};
}

}  // namespace remat::fuzz
