// Storages that are emptied while the graph still needs them, and filled again before backward or within it: what FSDP2
// does to every parameter, by hand to inputs and activations too.
#include <cstring>
#include <memory>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>

#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// The bytes of a storage, kept where no allocator of tensors sees them.
using Bytes = std::shared_ptr<std::vector<char>>;

Bytes bytes_of(const Tensor& x) {
  const auto& storage = x.storage();
  auto bytes = std::make_shared<std::vector<char>>(storage.nbytes());
  std::memcpy(bytes->data(), storage.data(), bytes->size());
  return bytes;
}

void halve(const Bytes& bytes, at::ScalarType type) {
  const auto scale = [&](auto zero) {
    using T = decltype(zero);
    for (size_t at = 0; at + sizeof(T) <= bytes->size(); at += sizeof(T)) {
      T number;
      std::memcpy(&number, bytes->data() + at, sizeof(T));
      number = static_cast<T>(number * T(0.5));
      std::memcpy(bytes->data() + at, &number, sizeof(T));
    }
  };
  if (type == at::kFloat) scale(0.0F);
  if (type == at::kDouble) scale(0.0);
}

/// Gives the storage of `x` its memory back, and `bytes` into it through one of the doors.
void fill(const Tensor& x, const Bytes& bytes, int64_t door) {
  at::native::resize_bytes_nocuda(x.storage(), static_cast<int64_t>(bytes->size()));
  const bool whole = x.is_contiguous() && x.storage_offset() == 0 && x.nbytes() == bytes->size();
  if (door == 0 || !whole) {
    std::memcpy(x.storage().mutable_data(), bytes->data(), bytes->size());
    return;
  }
  const Tensor source = at::empty(x.sizes(), x.options().requires_grad(false));
  std::memcpy(source.mutable_data_ptr(), bytes->data(), bytes->size());
  if (door == 1) {  // an operator, and no new version: FSDP2's way
    const at::AutoDispatchBelowADInplaceOrView guard;
    x.copy_(source);
  } else if (door == 2) {
    const torch::NoGradGuard no_grad;
    x.copy_(source);
  } else {
    x.variable_data().copy_(source);
  }
}

void empty_storage(Machine& m) {
  const bool leaf = m.random().chance(60);
  const Slot x = m.pick([&](const Slot& s) {
    return is_float(s.t) && s.leaf == leaf && s.t.layout() == at::kStrided && s.t.numel() > 0;
  });
  if (!x) return;
  if (m.random().chance(60)) {  // so that it is in the graph
    m.emit("use of " + x.name(), [&] { return (x.t.sin() * x.t).tanh(); });
  }
  const Bytes bytes = bytes_of(x.t);
  const bool changed = m.random().chance(25);
  if (changed) halve(bytes, x.t.scalar_type());
  const int64_t door = m.random().below(4);
  m.act("empty " + x.name(), [&] { at::native::resize_bytes_nocuda(x.t.storage(), 0); });
  m.take_away(x, [&m, x, bytes, door, changed] {
    m.act("fill " + x.name() + " by door " + std::to_string(door) + (changed ? ", halved" : ""),
          [&] { fill(x.t, bytes, door); });
  });
}

void refill(Machine& m) { m.refill(); }

}  // namespace

std::vector<Operator> storage_operators() { return {{"empty storage", 3, empty_storage}, {"refill", 1, refill}}; }

}  // namespace remat::fuzz
