// src/device/stream_copy.h -- copies of storages on devices that have streams.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat::device {

/// A new storage of the same device with the same contents, filled in the order of the stream that this thread uses
/// there.
c10::intrusive_ptr<c10::StorageImpl> copy_in_stream(const c10::StorageImpl& storage);

}  // namespace remat::device
