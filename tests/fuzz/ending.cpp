// How a program ends: its losses and their backward passes, and what it leaves to be compared.
#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fuzz/machine.h"

namespace remat::fuzz {

uint64_t fingerprint(const Tensor& tensor) {
  if (!tensor.defined()) return 1;
  const torch::NoGradGuard no_grad;
  const auto t = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu();
  uint64_t hash = Random::mix(static_cast<uint64_t>(t.scalar_type()));
  for (const auto size : t.sizes()) hash = Random::mix(hash, static_cast<uint64_t>(size));
  const auto* bytes = static_cast<const unsigned char*>(t.numel() == 0 ? nullptr : t.const_data_ptr());
  for (size_t i = 0; i < t.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
  return hash;
}

void Machine::final_losses() {
  std::vector<Tensor> losses;
  std::string text;
  const int64_t count = random_.between(1, 5);
  for (int64_t i = 0; i < count; ++i) {
    const Slot x =
        pick([](const Slot& s) { return is_float(s.t) && s.t.requires_grad() && !s.leaf; }, static_cast<uint64_t>(i));
    if (!x) break;
    const int64_t kind = random_.below(3);
    losses.push_back(kind == 0 ? (x.t * x.t).sum() : kind == 1 ? (x.t * x.t.sin()).mean() : x.t.to(at::kFloat).sum());
    text.append(" ").append(x.name());
  }
  if (losses.empty()) return;
  if (random_.chance(80)) std::erase_if(slots, [](const Slot& s) { return !s.leaf; });
  const int64_t kind = random_.below(4);
  const bool refill_within = kind > 1 && random_.chance(50);  // by a hook that runs first
  if (!refill_within) refill();
  std::vector<Tensor> leaves;
  for (const auto& slot : slots) {
    if (slot.leaf && slot.t.requires_grad()) leaves.push_back(slot.t);
  }
  if (kind == 0) {  // one after another on a graph that is kept
    for (size_t i = 0; i < losses.size() && !stopped_; ++i) {
      backward("backward of loss " + std::to_string(i) + " of" + text,
               [&] { losses[i].backward({}, i + 1 < losses.size()); });
    }
    return;
  }
  Tensor loss = losses[0].to(at::kDouble);
  for (size_t i = 1; i < losses.size(); ++i) loss = loss + losses[i];
  losses.clear();
  record("loss", loss);
  if (kind == 1 && random_.chance(50) && !inference_backward_) {  // double backward
    backward("double backward of" + text, [&] {
      const auto grads = torch::autograd::grad({loss}, leaves, {}, true, true, true);
      Tensor penalty = loss;
      for (const auto& g : grads) {
        if (g.defined()) penalty = penalty + g.pow(2).sum();
      }
      loss.reset();
      penalty.backward();
    });
    return;
  }
  if (refill_within) {
    loss.register_hook([this](const Tensor&) { refill(); });
  }
  backward("backward of" + text, [&] { loss.backward(); });
}

Trace Machine::finish() {
  if (stopped_) return trace_;
  try {
    refill();
    for (const auto& slot : slots) {
      if (!slot.leaf) continue;
      record("value of " + slot.name(), slot.t);
      record("gradient of " + slot.name(), slot.t.grad());
    }
    if (!draws()) return trace_;
    record("generator state", at::detail::getDefaultCPUGenerator().get_state());
    record("second generator's state", generator_.get_state());
    if (!device().is_cpu()) record("device's generator", at::globalContext().defaultGenerator(device()).get_state());
  } catch (const std::exception& e) {
    note_failure(e);
    if (!failed_later_) throw;
  }
  return trace_;
}

/// Autograd's thread for the device still holds the last node that it ran, and what that has saved, until it is given
/// another, which is an empty one here.
void Machine::rest_threads() {
  if (device().is_cpu()) return;
  const torch::AutoGradMode with_graph(true);
  const auto none = at::empty({0}, options(at::kFloat)).requires_grad_();
  (none * 1).backward(at::empty({0}, options(at::kFloat)));
}

bool Machine::settle() {
  if (device().is_cpu()) return false;
  try {
    rest_threads();
    c10::impl::VirtualGuardImpl(device().type()).synchronizeDevice(device().index());
  } catch (const std::exception& e) {
    note_failure(e);
  }
  return failed_later_;
}

}  // namespace remat::fuzz
