#include "tape/stream_uses.h"

#include <algorithm>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "device/device.h"
#include "device/streams.h"

namespace remat {

using device::stream_of_thread;
using device::wait_for;

namespace {

bool contains(const std::vector<c10::Stream>& streams, const c10::Stream& stream) {
  return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

}  // namespace

void StreamUses::made(const c10::StorageImpl& storage, bool by_record) {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  uses_[&storage] = {.streams = {stream_of_thread(device)}, .told = {}, .leaf = false, .by_record = by_record};
}

void StreamUses::used(const c10::StorageImpl& storage, bool for_record) {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  const c10::Stream stream = stream_of_thread(device);
  Uses& uses = uses_[&storage];
  if (for_record && !contains(uses.told, stream)) {
    c10::impl::VirtualGuardImpl(device.type()).recordDataPtrOnStream(storage.data_ptr(), stream);
    uses.told.push_back(stream);
  }
  if (contains(uses.streams, stream)) return;
  if (uses.by_record) wait_for(uses.streams.front(), stream);
  uses.streams.push_back(stream);
}

void StreamUses::look_at(const c10::StorageImpl& storage) {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  const auto entry = uses_.find(&storage);
  if (entry == uses_.end()) return;
  const c10::Stream stream = stream_of_thread(device);
  for (const c10::Stream& other : entry->second.streams) {
    if (other != stream) wait_for(other, stream);
  }
}

void StreamUses::forget(const c10::StorageImpl& storage) {
  if (device::has_streams(storage.device())) uses_.erase(&storage);
}

void StreamUses::freed(const c10::StorageImpl& storage) noexcept {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  const auto entry = uses_.find(&storage);
  if (entry == uses_.end()) return;
  const Uses uses = std::move(entry->second);
  uses_.erase(entry);
  if (!uses.leaf && uses.streams.size() == 1) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  for (const c10::Stream& stream : uses.streams) {
    try {
      guard.recordDataPtrOnStream(storage.data_ptr(), stream);
    } catch (const c10::Error&) {  // a device that cannot be told: then it is done before the memory is free
      guard.synchronizeStream(stream);
    }
  }
}

}  // namespace remat
