#include "record/stream_uses.h"

#include <algorithm>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/device.h"

namespace remat {
namespace {

c10::Stream stream_of_thread(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

void StreamUses::made(const c10::StorageImpl& storage, bool by_replay) {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  uses_[&storage] = {.streams = {stream_of_thread(device)}, .leaf = false, .by_replay = by_replay};
}

void StreamUses::used(const c10::StorageImpl& storage) {
  const c10::Device device = storage.device();
  if (!device::has_streams(device)) return;
  const c10::Stream stream = stream_of_thread(device);
  Uses& uses = uses_[&storage];
  if (std::find(uses.streams.begin(), uses.streams.end(), stream) != uses.streams.end()) return;
  if (uses.by_replay) {
    c10::Event made(device.type());
    made.record(uses.streams.front());
    made.block(stream);
  }
  uses.streams.push_back(stream);
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
  for (const c10::Stream& stream : uses.streams) guard.recordDataPtrOnStream(storage.data_ptr(), stream);
}

}  // namespace remat
