// Sparse tensors over dense ones, which are written to later: an opaque input has more versions than its own.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

constexpr int64_t kRows = 4;

void make_sparse(Machine& m) {
  const Slot e = m.pick([](const Slot& s) {
    return is_float(s.t) && s.t.dim() >= 1 && s.t.size(0) > 0 && s.t.size(0) < 20 && s.t.layout() == at::kStrided;
  });
  if (!e) return;
  const int64_t count = e.t.size(0);
  const Tensor values = e.t.dim() == 1 ? e.t : e.t.flatten(1).select(1, 0);
  if (values.dim() != 1) return;
  const int id = static_cast<int>(m.sparse.size());
  switch (m.random().below(3)) {
    case 0: {
      const auto where = m.indices(kRows, {2, count});
      return m.act(std::string("s") + std::to_string(id) + " = sparse_coo_tensor of " + e.name(), [&] {
        m.sparse.push_back({at::sparse_coo_tensor(where, values, {kRows, kRows}), id, false});
      });
    }
    case 1: {
      const auto where = m.indices(kRows, {1, count});
      return m.act(std::string("s") + std::to_string(id) + " = hybrid sparse_coo_tensor of " + e.name(), [&] {
        m.sparse.push_back(
            {at::sparse_coo_tensor(where, values.unsqueeze(1).expand({count, kRows}), {kRows, kRows}), id, false});
      });
    }
    default: {
      const auto rows = at::arange(kRows + 1, at::kLong).clamp_max(count);
      const auto columns = at::zeros({std::min(count, kRows)}, at::kLong);
      return m.act(std::string("s") + std::to_string(id) + " = sparse_csr_tensor of " + e.name(), [&] {
        m.sparse.push_back({at::sparse_csr_tensor(rows, columns, values.narrow(0, 0, std::min(count, kRows)),
                                                  {kRows, kRows}, values.options().layout(at::kSparseCsr)),
                            id, false});
      });
    }
  }
}

Slot pick_sparse(Machine& m) {
  return m.sparse.empty() ? Slot() : m.sparse[static_cast<size_t>(m.random().below(std::ssize(m.sparse)))];
}

void use_sparse(Machine& m) {
  const Slot s = pick_sparse(m);
  if (!s) return;
  const std::string name = std::string("s").append(std::to_string(s.id));
  const Slot w = m.parameter({kRows, 3}, s.t.scalar_type());
  switch (m.random().below(4)) {
    case 0:
      return m.emit("to_dense of " + name, [&] { return s.t.to_dense().sin(); });
    case 1:
      return m.emit("sum of " + name, [&] { return s.t.sum() * w.t; });
    case 2:
      return m.emit("product of " + name + " by " + w.name() + ", cubed", [&] { return s.t.matmul(w.t).pow(3); });
    default:
      return m.emit("product of " + name + " and exp(" + w.name() + ")", [&] { return at::mm(s.t, w.t.exp()).tanh(); });
  }
}

void write_values(Machine& m) {
  const Slot s = pick_sparse(m);
  if (!s) return;
  const std::string name = std::string("s").append(std::to_string(s.id));
  const torch::NoGradGuard no_grad;
  if (s.t.layout() == at::kSparse && m.random().chance(50)) {
    return m.act(name + "._values().mul_", [&] { s.t._values().mul_(1.5); });
  }
  if (s.t.layout() == at::kSparse) {
    return m.act(name + ".detach()._indices() rotated", [&] {
      const auto where = s.t.detach()._indices();
      where.copy_((where + 1).remainder(kRows));
    });
  }
  m.act(name + ".values().mul_", [&] { s.t.values().mul_(1.5); });
}

void write_dense(Machine& m) {
  const Slot e = m.pick([](const Slot& s) { return is_float(s.t) && s.t.dim() >= 1 && s.t.size(0) < 20; });
  if (!e) return;
  const torch::NoGradGuard no_grad;
  m.act(e.name() + ".mul_ (no_grad)", [&] { e.t.mul_(0.75); });
}

}  // namespace

std::vector<Operator> sparse_operators() {
  return {{"make sparse", 3, make_sparse},
          {"use sparse", 5, use_sparse},
          {"write values", 1, write_values},
          {"write dense", 2, write_dense}};
}

}  // namespace remat::fuzz
