// What factories filled (rule 3 of residency.h): a replay can make it, unless somebody wrote to it through a pointer.
#include "record/checksum.h"
#include "record/residency.h"

namespace remat {
namespace {

/// Operators that write to part of what a factory filled, one after another, and are recorded: each time the contents
/// are read three times over for their checksum.
constexpr uint8_t kMostWrites = 4;

}  // namespace

void Residency::note_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (storage.device_type() == c10::kCPU) {
    value.checksum = checksum(storage, {0, value.extent});
  } else if (storage.device_type() != c10::kMeta) {
    return;  // a look at a GPU's memory would take too long
  }
  value.filled = true;
}

bool Residency::accept_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (!value.raw || !value.filled || value.producer == kNone) return false;
  if (value.written_unseen() || !value.is_in_place(storage) || value.is_handed_out(storage)) return false;
  if (static_cast<int64_t>(storage.nbytes()) != value.bytes || is_overwritten(id, storage)) return false;
  value.raw = false;
  value.watched = storage.device_type() == c10::kCPU;
  return true;
}

bool Residency::accept_write(ValueId id, const c10::StorageImpl& storage, bool replaces) {
  const Value& value = values_[id];
  if (replaces && (value.raw || value.recomputable())) return true;
  if (!value.recomputable()) return accept_filled(id, storage);
  if (value.is_handed_out(storage)) return false;  // it is a leaf where it is read
  return !value.filled || (value.writes < kMostWrites && !is_overwritten(id, storage));
}

void Residency::note_written(ValueId before, ValueId after, const c10::StorageImpl& storage) {
  values_[after].watched = values_[before].watched;
  if (!values_[before].filled || values_[before].writes >= kMostWrites) return;
  values_[after].writes = values_[before].writes + 1;
  note_filled(after, storage);
}

bool Residency::is_overwritten(ValueId id, const c10::StorageImpl& storage) const {
  const Value& value = values_[id];
  if (!value.filled || value.checksum == 0) return false;
  if (!value.is_in_place(storage) || static_cast<int64_t>(storage.nbytes()) != value.bytes) return false;  // emptied
  return value.checksum != checksum(storage, {0, value.extent});
}

}  // namespace remat
