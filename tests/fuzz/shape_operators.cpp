// Views, copies between shapes, indexing.
#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// Indices below `limit` in a shape, drawn from the default generator or computed.
Tensor indices(Machine& m, std::vector<int64_t> sizes, int64_t limit) {
  if (m.random().chance(50) && m.draws()) return at::randint(limit, sizes, m.options(at::kLong));
  int64_t count = 1;
  for (const auto s : sizes) count *= s;
  return at::arange(count, m.options(at::kLong)).remainder(limit).view(sizes);
}

void view(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return s.t.dim() > 0 && s.t.numel() > 0; });
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim());
  const int64_t size = x.t.size(dim);
  const int64_t from = m.random().below(size);
  const int64_t length = m.random().between(1, size - from);
  const std::string on = " of " + x.name() + " at " + std::to_string(dim);
  switch (m.random().below(13)) {
    case 0:
      return m.emit("transpose" + on, [&] { return x.t.transpose(0, dim); });
    case 1:
      return m.emit("narrow" + on, [&] { return x.t.narrow(dim, from, length); });
    case 2:
      return m.emit("select" + on, [&] { return x.t.select(dim, from); });
    case 3:
      return m.emit("slice by 2" + on, [&] { return x.t.slice(dim, from, std::nullopt, 2); });
    case 4:
      return m.emit("reshape" + on, [&] { return x.t.reshape({x.t.size(0), -1}); });
    case 5:
      return m.emit("flatten" + on, [&] { return x.t.flatten(); });
    case 6:
      return m.emit("unsqueeze" + on, [&] { return x.t.unsqueeze(dim); });
    case 7:
      return m.emit("squeeze" + on, [&] { return x.t.squeeze(); });
    case 8:
      return m.emit("expand" + on, [&] { return x.t.unsqueeze(0).expand({3, -1}).alias(); });
    case 9:
      return m.emit("unfold" + on, [&] { return x.t.unfold(dim, std::min<int64_t>(2, size), 1); });
    case 10:
      return m.emit("diagonal" + on, [&] { return x.t.dim() < 2 ? x.t.diag_embed() : x.t.diagonal(); });
    case 11:
      return m.emit("as_strided" + on, [&] {
        return x.t.is_contiguous() ? x.t.as_strided({x.t.numel()}, {1}, x.t.storage_offset()) : x.t.t();
      });
    default:
      return m.emit("movedim" + on, [&] { return x.t.movedim(dim, -1); });
  }
}

void expand_and_use(Machine& m) {
  const Slot x = m.pick_float(1, 3);
  if (!x) return;
  m.emit("expanded product of " + x.name(), [&] {
    std::vector<int64_t> sizes = x.t.sizes().vec();
    sizes.insert(sizes.begin(), 3);
    const auto wide = x.t.unsqueeze(0).expand(sizes);
    return wide * wide.contiguous();
  });
}

void pieces(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return s.t.dim() > 0 && s.t.numel() > 1; });
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim());
  switch (m.random().below(3)) {
    case 0:
      return m.emit_all("split of " + x.name(), [&] { return x.t.split(2, dim); });
    case 1:
      return m.emit_all("chunk of " + x.name(), [&] { return x.t.chunk(2, dim); });
    default:
      return m.emit_all("unbind of " + x.name(), [&] { return x.t.unbind(dim); });
  }
}

void join(Machine& m) {
  const Slot a = m.pick_float(1, 4);
  if (!a) return;
  const Slot b = m.pick([&](const Slot& s) { return is_float(s.t) && s.t.sizes() == a.t.sizes(); }, 1);
  const Slot& second = b ? b : a;
  const int64_t dim = m.random().below(a.t.dim());
  const std::string on = " of " + a.name() + ", " + second.name() + " at " + std::to_string(dim);
  switch (m.random().below(3)) {
    case 0:
      return m.emit("cat" + on, [&] { return at::cat({a.t, second.t, a.t}, dim); });
    case 1:
      return m.emit("stack" + on, [&] { return at::stack({a.t, second.t}, dim); });
    default:
      return m.emit("einsum" + on, [&] { return (a.t.unsqueeze(-1) * second.t.unsqueeze(-1)).sum(-1); });
  }
}

void index(Machine& m) {
  const Slot x = m.pick_float(1, 4);
  if (!x || x.t.numel() == 0) return;
  const int64_t dim = m.random().below(x.t.dim());
  const int64_t size = x.t.size(dim);
  const std::string on = " of " + x.name() + " at " + std::to_string(dim);
  switch (m.random().below(8)) {
    case 0:
      return m.emit("index_select" + on, [&] { return x.t.index_select(dim, indices(m, {size + 1}, size)); });
    case 1:
      return m.emit("gather" + on, [&] { return x.t.gather(dim, indices(m, x.t.sizes().vec(), size)); });
    case 2:
      return m.emit("index" + on, [&] { return x.t.index({indices(m, {3}, x.t.size(0))}); });
    case 3:
      return m.emit("index by mask" + on, [&] { return x.t.index({x.t.detach() > 0}); });
    case 4:
      return m.emit("masked_select" + on, [&] { return x.t.masked_select(x.t < 0.3); });
    case 5:
      return m.emit("take" + on, [&] { return x.t.take(indices(m, {2, 3}, x.t.numel())); });
    case 6:
      return m.emit("scatter_add" + on,
                    [&] { return at::zeros_like(x.t).scatter_add(dim, indices(m, x.t.sizes().vec(), size), x.t); });
    default:
      return m.emit("index_put" + on, [&] {
        return x.t.index_put({indices(m, {3}, x.t.size(0))}, x.t.select(0, 0), m.random().chance(50));
      });
  }
}

void rearrange(Machine& m) {
  const Slot x = m.pick_float(1, 4);
  if (!x) return;
  const int64_t dim = m.random().below(x.t.dim());
  const std::string on = " of " + x.name() + " at " + std::to_string(dim);
  switch (m.random().below(6)) {
    case 0:
      return m.emit("flip" + on, [&] { return x.t.flip({dim}); });
    case 1:
      return m.emit("roll" + on, [&] { return x.t.roll(1, dim); });
    case 2:
      return m.emit("repeat" + on, [&] { return x.t.unsqueeze(0).repeat_interleave(2, 0); });
    case 3:
      return m.emit("pad" + on, [&] { return at::constant_pad_nd(x.t, {1, 2}, 0.5); });
    case 4:
      return m.emit("tril" + on, [&] { return x.t.dim() < 2 ? x.t + 1 : x.t.tril(); });
    default:
      return m.emit("contiguous" + on, [&] { return x.t.transpose(0, dim).contiguous(); });
  }
}

void forget(Machine& m) {
  const Slot x = m.pick([](const Slot& s) { return !s.leaf; });
  if (x) m.act("forget " + x.name(), [&] { m.forget(x.id); });
}

}  // namespace

std::vector<Operator> shape_operators() {
  return {{"view", 18, view},  {"expand", 3, expand_and_use}, {"pieces", 4, pieces}, {"join", 5, join},
          {"index", 8, index}, {"rearrange", 5, rearrange},   {"forget", 5, forget}};
}

}  // namespace remat::fuzz
