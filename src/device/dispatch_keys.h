// src/device/dispatch_keys.h -- the keys by which PyTorch's dispatcher tells the devices apart whose operators remat
// records.
#pragma once

#include <array>

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKeySet.h>

namespace remat::device {

struct Keys {
  c10::DeviceType type;
  c10::DispatchKey kernels, sparse, autograd, autocast;
};

/// The host's first. The meta device, where nothing is computed, is not among them.
inline constexpr std::array<Keys, 3> kKeys = {{
    {c10::kCPU, c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU, c10::DispatchKey::AutogradCPU,
     c10::DispatchKey::AutocastCPU},
    {c10::kCUDA, c10::DispatchKey::CUDA, c10::DispatchKey::SparseCUDA, c10::DispatchKey::AutogradCUDA,
     c10::DispatchKey::AutocastCUDA},
    {c10::kPrivateUse1, c10::DispatchKey::PrivateUse1, c10::DispatchKey::SparsePrivateUse1,
     c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::AutocastPrivateUse1},
}};
inline constexpr const Keys& kHostKeys = kKeys[0];

/// One key of each.
constexpr c10::DispatchKeySet each(c10::DispatchKey Keys::*key) {
  c10::DispatchKeySet set;
  for (const Keys& keys : kKeys) set = set | c10::DispatchKeySet(keys.*key);
  return set;
}
inline constexpr c10::DispatchKeySet kAutocastKeys = each(&Keys::autocast);
/// That the tensors of these devices may have.
inline constexpr c10::DispatchKeySet kTensorKeys = each(&Keys::kernels) | each(&Keys::autograd) | kAutocastKeys;
/// That tensors of the meta device may have.
inline constexpr c10::DispatchKeySet kMetaTensorKeys =
    c10::DispatchKeySet(c10::DispatchKey::Meta) | c10::DispatchKeySet(c10::DispatchKey::AutogradMeta);

/// null for the meta device, and for what remat does not support.
constexpr const Keys* find_keys(c10::DeviceType type) {
  for (const Keys& keys : kKeys) {
    if (keys.type == type) return &keys;
  }
  return nullptr;
}

/// The device of a tensor with these keys.
inline c10::DeviceType type_of(c10::DispatchKeySet keys) {
  for (const Keys& device : kKeys) {
    if (keys.has_backend(c10::toBackendComponent(device.kernels))) return device.type;
  }
  return c10::kMeta;
}

}  // namespace remat::device
