// What factories filled, and what operators filled slice by slice (rule 3 of residency.h): a replay can make it, unless
// somebody wrote to it through a pointer.
#include <memory>
#include <utility>

#include "device/device.h"
#include "record/checksum.h"
#include "record/residency.h"

namespace remat {
namespace {

/// Operators that write to part of what a factory filled, one after another, after which a checksum is taken: each time
/// the contents are read three times over. From then on what they have not overwritten counts as undefined.
constexpr uint8_t kMostWrites = 4;

}  // namespace

void Residency::note_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (device::is_on_host(storage)) {
    value.checksum = checksum(storage, {0, value.extent});
  } else if (device::has_streams(storage.device_type())) {
    return;  // a look at its memory would take too long
  }
  value.filled = true;
}

bool Residency::accept_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (!value.raw || !value.filled || value.producer == kNone) return false;
  if (value.written_unseen() || !value.is_in_place(storage) || value.is_handed_out(storage)) return false;
  if (static_cast<int64_t>(storage.nbytes()) != value.bytes || is_overwritten(id, storage)) return false;
  value.raw = false;
  value.watched = device::is_on_host(storage);
  return true;
}

bool Residency::accept_write(ValueId id, const at::TensorBase& tensor, bool overwrites) {
  const Value& value = values_[id];
  const c10::StorageImpl& storage = *storage_of(tensor);
  if (overwrites && covers_storage(tensor) && (value.raw || value.recomputable())) return true;
  const auto is_slice = [&] { return overwrites && strip_of(*tensor.unsafeGetTensorImpl()); };
  if (!value.recomputable()) return accept_filled(id, storage) || (accept_undefined(id, storage) && is_slice());
  if (value.is_handed_out(storage)) return false;  // it is a leaf where it is read
  if (!value.filled) return !value.coverage || is_slice();
  return (value.writes < kMostWrites || is_slice()) && !is_overwritten(id, storage);
}

bool Residency::accept_undefined(ValueId id, const c10::StorageImpl& storage) const {
  const Value& value = values_[id];
  if (!value.raw || value.filled || value.producer == kNone || value.written_unseen()) return false;
  if (!value.is_in_place(storage) || value.is_handed_out(storage)) return false;
  return static_cast<int64_t>(storage.nbytes()) == value.bytes;
}

void Residency::note_written(ValueId before, ValueId after, const c10::StorageImpl& storage,
                             const std::optional<Strip>& strip) {
  const Value& old = values_[before];
  Value& value = values_[after];
  value.watched = old.watched;
  if (!old.is_of_factory()) return;
  Coverage coverage = old.coverage ? *old.coverage : Coverage(old.bytes);
  if (strip) coverage.add(*strip);
  if (coverage.is_complete()) {
    if (old.coverage) value.watched = device::is_on_host(storage);
    return;
  }
  value.coverage = std::make_shared<const Coverage>(std::move(coverage));
  if (old.filled && old.writes < kMostWrites) {
    value.writes = old.writes + 1;
    note_filled(after, storage);
  } else {
    value.workspace = true;
  }
}

bool Residency::is_overwritten(ValueId id, const c10::StorageImpl& storage) const {
  const Value& value = values_[id];
  if (!value.filled || value.checksum == 0) return false;
  if (!value.is_in_place(storage) || static_cast<int64_t>(storage.nbytes()) != value.bytes) return false;  // emptied
  return value.checksum != checksum(storage, {0, value.extent});
}

}  // namespace remat
