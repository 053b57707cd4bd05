// What programs on an accelerator do beside the CPU's: values of other devices in the middle of them, other
// streams.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

/// Drawn from the CPU's generator and copied, as a data loader does.
void noise_of_cpu(Machine& m) {
  const Slot x = m.pick_float();
  if (!x || !m.draws()) return;
  m.emit("noise of the CPU's on " + x.name(), [&] {
    const auto numbers = at::randn(x.t.sizes(), at::TensorOptions(x.t.scalar_type()));
    return x.t * numbers.to(x.t.device()).cos();
  });
}

/// There and back, with operators between that the CPU computes. Without a gradient: autograd's threads of the CPU and
/// of the device would add up x's in the order of chance.
void detour(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const bool wide = m.random().chance(30);
  m.emit("detour over the CPU of " + x.name(), [&] {
    const auto y = x.t.detach().cpu().tanh();
    return (y * y.cos()).to(m.device(), wide ? at::kDouble : x.t.scalar_type()) * x.t;
  });
}

void wait_for(const c10::Stream& other, const c10::Stream& stream) {
  c10::Event reached(other.device_type());
  reached.record(other);
  reached.block(stream);
}

/// As a program must that uses several streams: each waits for what it reads, and the allocator knows who reads it.
void side_stream(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const bool saves = m.random().chance(50);
  m.emit("on another stream " + std::string(saves ? "sin * " : "exp of ") + x.name(), [&] {
    const c10::impl::VirtualGuardImpl guard(m.device().type());
    const c10::Stream main = guard.getStream(m.device());
    const c10::Stream side = guard.getStreamFromGlobalPool(m.device());
    wait_for(main, side);
    x.t.record_stream(side);
    Tensor y;
    {
      const c10::StreamGuard on_side(side);
      y = saves ? x.t.sin() * x.t : x.t.clamp(-4, 4).exp().tanh();
    }
    wait_for(side, main);
    y.record_stream(main);
    return y;
  });
}

/// A value that the other device makes. Without a gradient, as above.
void other_device(Machine& m) {
  const Slot x = m.pick_float();
  if (!x) return;
  const c10::Device other(m.device().type(), 1);
  m.emit("by the other device, of " + x.name(), [&] {
    const auto y = x.t.detach().to(other).cos();
    return (y * y).to(m.device()) * x.t;
  });
}

}  // namespace

std::vector<Operator> accelerator_operators() {
  return {{"noise of the CPU", 3, noise_of_cpu},
          {"detour", 3, detour},
          {"side stream", 4, side_stream},
          {"other device", 2, other_device}};
}

}  // namespace remat::fuzz
