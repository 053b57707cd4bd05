// Operators that change sizes and strides in place, such as squeeze_(): they count as writes, and are none.
#include "observe/recorder.h"

namespace remat {
namespace {

/// Held while an operator such as squeeze_() runs on a tensor of this value.
struct Reshape final : at::ObserverContext {
  StoragePtr storage;
  ValueId value = kNone;
  uint32_t version = 0;
};

}  // namespace

std::unique_ptr<at::ObserverContext> Recorder::begin_reshape(const at::Tensor& tensor) const {
  if (!tensor.defined() || !is_plain(tensor)) return nullptr;
  const std::lock_guard lock(tape_->mutex);
  c10::StorageImpl* const storage = storage_of(tensor);
  const ValueId id = tape_->values.find(storage);
  if (id == kNone || !tape_->values[id].version_counter.enabled() || tape_->values[id].written_unseen()) return nullptr;
  auto context = std::make_unique<Reshape>();
  context->storage = StoragePtr::reclaim_copy(storage);
  context->value = id;
  context->version = tape_->values[id].version;
  return context;
}

/// The version count goes up by one, and the contents are what they were.
void Recorder::end_reshape(const at::ObserverContext& context) {
  const auto& reshape = static_cast<const Reshape&>(context);
  const std::lock_guard lock(tape_->mutex);
  if (tape_->values.find(reshape.storage.get()) != reshape.value) return;
  const Value& value = tape_->values[reshape.value];
  if (value.version == reshape.version && value.version_counter.enabled() &&
      value.version_counter.current_version() == reshape.version + 1) {
    tape_->values.note_reshape(reshape.value);
  }
}

}  // namespace remat
