#include <remat/extension.h>

#include <atomic>

#include "device/device.h"
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "observe/tapes.h"
#include "operators/named_operators.h"
#include "operators/operator_info.h"
#include "replay/saved_tensor.h"

namespace remat::extension {

bool is_recording() { return Recorder::current() != nullptr; }
int64_t recorded_operators() {
  const Recorder* recorder = Recorder::current();
  if (recorder == nullptr) return -1;
  const std::lock_guard lock(recorder->tape()->mutex);
  return static_cast<int64_t>(recorder->tape()->program.size());
}
bool is_watching_operators() { return Recorder::is_watching_operators(); }
bool is_anything_recorded() { return Tapes::all().exist(); }

bool is_repeatable(const std::string& name) { return is_repeatable_operator(name); }

bool is_recorded_operator(const std::string& name, const std::string& overload) {
  const OperatorInfo* const info = operator_info(c10::OperatorName(name, overload));
  return info != nullptr && is_recorded(*info);
}

bool is_unwritten(const at::Tensor& tensor) {
  const Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !is_plain(tensor)) return false;
  Tape& tape = *recorder->tape();
  const std::lock_guard lock(tape.mutex);
  const ValueId id = tape.values.find(storage_of(tensor));
  if (id == kNoId) return false;
  const Value& value = tape.values[id];
  return value.producer != kNoId && tape.program[value.producer].info->blank;
}

static std::atomic<int64_t> g_compilations = 0;
void note_compilation() { ++g_compilations; }
int64_t compilations() { return g_compilations; }

struct OpaqueRegion::Impl {
  std::shared_ptr<Tape> tape;  ///< that of the step, which may end inside of the region
};

OpaqueRegion::OpaqueRegion() {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr) return;
  impl_ = std::make_unique<Impl>(Impl{recorder->tape()});
  recorder->begin_opaque();
}

OpaqueRegion::~OpaqueRegion() { end(); }

void OpaqueRegion::end() {
  if (impl_ == nullptr) return;
  if (Recorder* const recorder = Recorder::current_of(impl_->tape)) recorder->end_opaque();
  impl_.reset();
}

struct CompiledRegion::Impl {
  std::shared_ptr<Tape> tape;  ///< that of the step, which may end inside of the region
};

CompiledRegion::CompiledRegion() {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr) return;
  impl_ = std::make_unique<Impl>(Impl{recorder->tape()});
  recorder->begin_compiled();
}

CompiledRegion::~CompiledRegion() { end(); }

void CompiledRegion::end() {
  if (impl_ == nullptr) return;
  if (Recorder* const recorder = Recorder::current_of(impl_->tape)) recorder->end_compiled();
  impl_.reset();
}

void set_tensor_taker(TensorTaker taker) { tensor_taker() = taker; }

void hand_out(const at::Tensor& tensor) { Tapes::all().hand_out(tensor); }

void let_go(const at::Tensor& tensor) { Tapes::all().let_go(tensor); }

void announce_write(const at::Tensor& tensor) {
  Recorder* const recorder = Recorder::current();
  if (recorder != nullptr) recorder->announce_write(tensor);
  // Of what other threads have recorded, nobody knows how far they are.
  Tapes::all().hand_out(tensor, recorder != nullptr ? recorder->tape().get() : nullptr);
}

void count_memory(const at::Tensor& tensor) {
  if (is_plain(tensor)) count_memory(*storage_of(tensor));
}

void count_memory(c10::StorageImpl& storage) {
  const device::Kind& kind = device::kind_of(storage.device());
  if (kind.adopts()) kind.ledger(storage.device()).adopt(storage);
}

}  // namespace remat::extension
