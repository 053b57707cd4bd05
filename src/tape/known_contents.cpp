// What is known of contents that may have changed without an operator: checksums tell. Memory that was emptied and
// filled again, or given to somebody; first results on a device; and what factories filled, and operators slice by
// slice (rule 3 of residency.h): a replay can make it, unless somebody wrote to it through a pointer.
#include <memory>
#include <string>
#include <utility>

#include <remat/error.h>

#include "device/device.h"
#include "tape/checksum.h"
#include "tape/residency.h"

namespace remat {
namespace {

/// Operators that write to part of what a factory filled, one after another, after which a checksum is taken: each time
/// the contents are read three times over. From then on what they have not overwritten counts as undefined.
constexpr uint8_t kMostWrites = 4;

std::string other_contents(const Value& value) {
  return "[replay] " + std::string(value.traits.parameter ? "a parameter" : "an input") + " of " +
         std::to_string(value.bytes) +
         " bytes was emptied after the forward pass read it (its storage was resized or given other memory), and had "
         "other contents when backward read it, so that the gradients of this step are wrong; fill it with the same "
         "contents before backward, or empty it after backward";
}

}  // namespace

bool Residency::is_emptied_leaf(ValueId id) {
  if (values_[id].producer != kNoId || !emptied(id)) return false;
  return emptied_leaves_ = true;
}

bool Residency::is_restored(ValueId id) {
  Value& value = values_[id];
  const StoragePtr storage = emptied(id);
  if (!storage || value.producer != kNoId) return false;
  emptied_leaves_ = true;
  const bool followed = value.home.kind == Value::Home::Kind::kFollowed;
  const int64_t extent = followed ? value.extent : value.bytes;
  const auto bytes = static_cast<int64_t>(storage->nbytes());
  if (followed ? bytes < extent : bytes != extent) return false;
  const uint64_t last = value.home.last_contents ? value.home.last_contents->checksum() : 0;
  const auto other = [&] { return other_contents(value); };
  if (!checksums.match(followed ? value.watch.checksum : last, *storage, {0, extent}, other)) return false;
  value.home.allocation = memory::allocation_of(*storage);
  value.home.last_contents = memory::watch_contents(*storage, last);
  return true;
}

bool Residency::is_as_watched(ValueId id) const {
  const Value& value = values_[id];
  if (value.watch.checksum == 0 || DeferredChecksums::is_deferred(value.watch.checksum)) return true;
  return checksum(*value.kept, {0, value.extent}) == value.watch.checksum;
}

void Residency::watch_first(ValueId id, const OperatorInfo& producer) {
  constexpr int kRepeatsToTrust = 3;
  constexpr int kMostResults = 64;  // maybe nothing ever evicts any; and no step takes more than those before it
  Value& value = values_[id];
  if (!value.kept || !device::has_streams(value.kept->device_type()) || verify || value.watch.checksum != 0) return;
  if (value.is_unread_factory() || !value.is_comparable() || producer.repeated >= kRepeatsToTrust) return;
  if (producer.first_results++ >= kMostResults) return;
  value.watch.checksum = checksums.take(*value.kept, {0, value.extent});
}

void Residency::watch_contents(ValueId id, const c10::StorageImpl& storage) {
  const bool here = device::is_on_host(storage);
  const int64_t bytes = values_[id].bytes;
  const uint64_t contents = !here && expect_emptied && bytes > 0 ? checksums.take(storage, {0, bytes}) : 0;
  values_[id].home.last_contents = memory::watch_contents(storage, contents);
}

void Residency::hand_out(const c10::StorageImpl& storage) {
  const ValueId id = find(&storage);
  if (id == kNoId) return;
  Value& value = values_[id];
  value.watch.exported = Exported::kNow;
  const bool as_read = !value.is_written_unseen() && value.is_in_place(storage);
  if (value.producer == kNoId && value.needs.readers > 0 && value.watch.checksum == 0 && as_read) {
    value.watch.checksum = checksums.take(storage, {0, value.extent});
  }
}

void Residency::stop_watching() {
  for (ValueId id = 0; id < values_.size(); ++id) {
    Value& value = values_[id];
    if (value.is_unread_factory() || value.watch.checksum != 0 || !value.is_comparable()) continue;
    if (value.producer == kNoId && value.needs.readers == 0) continue;  // a leaf that no replay will read
    const StoragePtr storage = alive(id);
    const bool in_hands = storage && owners(storage) > (value.kept ? 2U : 1U);
    if (in_hands) value.watch.checksum = checksums.take(*storage, {0, value.extent});
  }
}

void Residency::note_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (device::is_on_host(storage)) {
    value.watch.checksum = checksum(storage, {0, value.extent});
  } else if (device::has_streams(storage.device_type())) {
    return;  // a look at its memory would take too long
  }
  value.origin = value.is_unread_factory() ? Origin::kFilled : Origin::kFilledAndRead;
}

bool Residency::accept_filled(ValueId id, const c10::StorageImpl& storage) {
  Value& value = values_[id];
  if (value.origin != Origin::kFilled || value.producer == kNoId) return false;
  if (value.is_written_unseen() || !value.is_in_place(storage) || value.is_exported(storage)) return false;
  if (static_cast<int64_t>(storage.nbytes()) != value.bytes || is_overwritten(id, storage)) return false;
  value.origin = Origin::kFilledAndRead;
  value.watch.access = device::is_on_host(storage) ? PointerAccess::kUsers : PointerAccess::kNobody;
  return true;
}

bool Residency::accept_write(ValueId id, const at::TensorBase& tensor, bool overwrites) {
  const Value& value = values_[id];
  const c10::StorageImpl& storage = *storage_of(tensor);
  if (overwrites && covers_storage(tensor) && (value.is_unread_factory() || value.is_recomputable())) return true;
  const auto is_slice = [&] { return overwrites && strip_of(*tensor.unsafeGetTensorImpl()); };
  if (!value.is_recomputable()) return accept_filled(id, storage) || (accept_undefined(id, storage) && is_slice());
  if (value.is_exported(storage)) return false;  // it is a leaf where it is read
  if (!value.is_filled()) return !value.coverage || is_slice();
  return ((value.coverage ? value.coverage->watched_writes() : 0) < kMostWrites || is_slice()) &&
         !is_overwritten(id, storage);
}

bool Residency::accept_undefined(ValueId id, const c10::StorageImpl& storage) const {
  const Value& value = values_[id];
  if (value.origin != Origin::kUndefined || value.producer == kNoId || value.is_written_unseen()) return false;
  if (!value.is_in_place(storage) || value.is_exported(storage)) return false;
  return static_cast<int64_t>(storage.nbytes()) == value.bytes;
}

void Residency::note_written(ValueId before, ValueId after, const c10::StorageImpl& storage,
                             const std::optional<Strip>& strip) {
  const Value& old = values_[before];
  Value& value = values_[after];
  value.watch.access = old.watch.access == PointerAccess::kUsers ? PointerAccess::kUsers : PointerAccess::kNobody;
  if (!old.is_of_factory()) return;
  Coverage coverage = old.coverage ? *old.coverage : Coverage(old.bytes);
  if (strip) coverage.add(*strip);
  if (coverage.is_complete()) {
    if (old.coverage) {
      value.watch.access = device::is_on_host(storage) ? PointerAccess::kUsers : PointerAccess::kNobody;
    }
    return;
  }
  const bool watched = old.is_filled() && coverage.watched_writes() < kMostWrites;
  if (watched) coverage.count_watched_write();
  value.coverage = std::make_shared<const Coverage>(std::move(coverage));
  if (watched) {
    note_filled(after, storage);
  } else {
    value.traits.workspace = true;
  }
}

bool Residency::is_overwritten(ValueId id, const c10::StorageImpl& storage) const {
  const Value& value = values_[id];
  if (!value.is_filled() || value.watch.checksum == 0) return false;
  if (!value.is_in_place(storage) || static_cast<int64_t>(storage.nbytes()) != value.bytes) return false;  // emptied
  return value.watch.checksum != checksum(storage, {0, value.extent});
}

void Residency::validate_homes() const {
  for (const auto& [storage, id] : by_storage_) {
    if (id < values_.size() && values_[id].home.storage._unsafe_get_target() == storage) continue;
    throw InternalError("[tape] broken invariant: the table has a home that is none; please report this");
  }
}

}  // namespace remat
