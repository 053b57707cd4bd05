// src/memory/storage_owners.h -- how many hold a storage.
#pragma once

#include <cstddef>

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <c10/util/intrusive_ptr.h>

namespace remat {

/// Does nobody refer to the Python object in `slot`? It owns its storage all the same, for as long as others do. False
/// in versions of PyTorch whose objects then own nothing.
template <class Slot>
bool is_idle_object(const Slot& slot) {
  if constexpr (requires { slot.has_unique_reference(); }) {
    return slot.has_unique_reference();
  } else {
    return false;
  }
}

/// References to `storage`, apart from that of a Python object to which nobody refers. PyTorch makes one where a tensor
/// is asked for its storage.
inline size_t owners(const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const size_t references = storage.use_count();
  return references > 1 && is_idle_object(*storage->pyobj_slot()) ? references - 1 : references;
}

}  // namespace remat
