#include "observe/reshape.h"

#include "pytorch/tensor_view.h"

namespace remat {
namespace {

/// Held while an operator such as squeeze_() runs on a tensor of this value.
struct Reshape final : at::ObserverContext {
  StoragePtr storage;
  ValueId value = kNoId;
  uint32_t version = 0;
};

}  // namespace

std::unique_ptr<at::ObserverContext> begin_reshape(Tape& tape, const at::Tensor& tensor) {
  if (!tensor.defined() || !is_plain(tensor)) return nullptr;
  const std::lock_guard lock(tape.mutex);
  c10::StorageImpl* const storage = storage_of(tensor);
  const ValueId id = tape.values.find(storage);
  if (id == kNoId || !tape.values[id].watch.counter.enabled() || tape.values[id].is_written_unseen()) return nullptr;
  auto context = std::make_unique<Reshape>();
  context->storage = StoragePtr::reclaim_copy(storage);
  context->value = id;
  context->version = tape.values[id].watch.version;
  return context;
}

void end_reshape(Tape& tape, const at::ObserverContext& context) {
  const auto& reshape = static_cast<const Reshape&>(context);
  const std::lock_guard lock(tape.mutex);
  if (tape.values.find(reshape.storage.get()) != reshape.value) return;
  const Value& value = tape.values[reshape.value];
  if (value.watch.version == reshape.version && value.watch.counter.enabled() &&
      value.watch.counter.current_version() == reshape.version + 1) {
    tape.values.note_reshape(reshape.value);
  }
}

}  // namespace remat
