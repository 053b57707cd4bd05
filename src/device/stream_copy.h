// src/device/stream_copy.h -- copies of storages on devices that have streams.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat::device {

/// A new storage of the same device with the same contents, filled in the order of the stream that this thread uses
/// there.
c10::intrusive_ptr<c10::StorageImpl> copy_in_stream(const c10::StorageImpl& storage);

/// Queues a copy of the first `bytes`, between `device` and pinned memory of the host, on the stream that this thread
/// uses there.
void copy_bytes(const c10::intrusive_ptr<c10::StorageImpl>& to, const c10::intrusive_ptr<c10::StorageImpl>& from,
                int64_t bytes, c10::Device device);

}  // namespace remat::device
