// Writes that no operator announces: through a pointer, through tensors with a version count of their own.
#include <cstring>

#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// Doubles elements of the storage's memory: all of them, or one.
void write_through_pointer(const Tensor& x, bool all) {
  const auto scale = [&](auto zero) {
    using T = decltype(zero);
    auto* const numbers = static_cast<T*>(x.storage().mutable_data());
    const auto first = static_cast<size_t>(x.storage_offset());
    const size_t count = x.storage().nbytes() / sizeof(T);
    for (size_t i = all ? 0 : first; i < (all ? count : first + 1); ++i) numbers[i] = numbers[i] * T(2) + T(1);
  };
  if (x.scalar_type() == at::kFloat) scale(0.0F);
  if (x.scalar_type() == at::kDouble) scale(0.0);
}

void hidden_write(Machine& m) {
  // Of inputs every setting finds it, of what else there is only verify.
  const bool inputs = m.kind() == Kind::kHiddenInputs;
  const Slot x = m.pick([&](const Slot& s) {
    return (s.t.scalar_type() == at::kFloat || s.t.scalar_type() == at::kDouble) && s.t.layout() == at::kStrided &&
           s.t.numel() > 0 && (!inputs || (s.leaf && !s.t.requires_grad()));
  });
  if (!x) return;
  if (m.random().chance(50)) {
    m.emit("use of " + x.name(), [&] { return (x.t.sin() * x.t).tanh() * m.slots.front().t.sum(); });
  }
  switch (m.random().below(5)) {
    case 0:
      return m.act(x.name() + " written through its pointer", [&] { write_through_pointer(x.t, true); });
    case 1:
      return m.act(x.name() + " written at one element", [&] { write_through_pointer(x.t, false); });
    case 2:
      return m.act(x.name() + ".data.mul_(2)", [&] { x.t.variable_data().mul_(2); });
    case 3:
      return m.act(x.name() + ".detach() written through its pointer",
                   [&] { write_through_pointer(x.t.detach(), true); });
    default:
      return m.act(x.name() + " written through from_blob", [&] {
        auto* const memory = x.t.storage().mutable_data();
        const auto count = static_cast<int64_t>(x.t.storage().nbytes() / x.t.itemsize());
        at::from_blob(memory, {count}, x.t.options().requires_grad(false)).add_(0.25);
      });
  }
}

}  // namespace

std::vector<Operator> hidden_write_operators() { return {{"hidden write", 1, hidden_write}}; }

}  // namespace remat::fuzz
