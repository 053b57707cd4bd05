// src/record/storage_copy.h -- copies of storages, on their device.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat {

/// A new storage of the same device with the same contents. On the CPU it has the same alignment to 64 bytes; elsewhere
/// it is filled in the order of the stream that this thread uses on that device.
c10::intrusive_ptr<c10::StorageImpl> copy_of(const c10::StorageImpl& storage);

}  // namespace remat
