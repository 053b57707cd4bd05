// Which recorder a thread has, from when to when.
#include <map>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/graph_task.h>

#include "device/device.h"
#include "observe/recorder.h"
#include "pytorch/raise.h"
#include "util/mutex.h"

namespace remat {
namespace {

/// Static objects are destroyed after those of their thread, and may hold a step or call operators.
thread_local bool t_thread_has_ended = false;

struct Slot {
  std::unique_ptr<Recorder> recorder;
  /// Of a backward pass that another thread has called, and the pass's number.
  std::unique_ptr<Recorder> joined;
  int joined_task = -1;
  /// PyTorch's list of callbacks is made first, so that it is there when they are taken away.
  Slot() { at::get_record_function_tls_(); }
  ~Slot() {
    if (recorder != nullptr) Recorder::stop();
    t_thread_has_ended = true;
  }
};
thread_local Slot t_slot;

/// The tapes of threads that record, by their callback. Autograd's threads of other devices have the callbacks of the
/// thread that called backward.
class TapesByCallback {
 public:
  void add(at::CallbackHandle callback, const std::shared_ptr<Tape>& tape) {
    const MutexLock lock(mutex_);
    std::erase_if(tapes_, [](const auto& entry) { return entry.second.expired(); });
    tapes_[callback] = tape;
  }
  std::shared_ptr<Tape> find(at::CallbackHandle callback) {
    const MutexLock lock(mutex_);
    const auto entry = tapes_.find(callback);
    return entry == tapes_.end() ? nullptr : entry->second.lock();
  }

 private:
  Mutex mutex_;
  std::map<at::CallbackHandle, std::weak_ptr<Tape>> tapes_ REMAT_GUARDED_BY(mutex_);
};

TapesByCallback& tapes_by_callback() {
  static auto* const tapes = new TapesByCallback;  // threads may outlive static destruction
  return *tapes;
}

}  // namespace

Recorder* Recorder::current_of(const std::shared_ptr<Tape>& tape) {
  Recorder* const recorder = current();
  return recorder != nullptr && recorder->tape_ == tape ? recorder : nullptr;
}

Recorder* Recorder::current() {
  if (t_thread_has_ended) return nullptr;
  Recorder* const recorder = t_slot.recorder.get();
  if (recorder == nullptr) return t_slot.joined == nullptr ? nullptr : joined();
  if (recorder->tape_->closed.load(std::memory_order_relaxed)) {
    // Another thread has ended the step. An operator that is still running goes first.
    if (recorder->is_idle()) stop();
    return nullptr;
  }
  return recorder;
}

Recorder* Recorder::joined() {
  Recorder* const recorder = t_slot.joined.get();
  const bool over = torch::autograd::get_current_graph_task_id() != t_slot.joined_task;
  if (!over && !recorder->tape_->closed.load(std::memory_order_relaxed)) return recorder;
  if (recorder->is_idle()) t_slot.joined.reset();
  return nullptr;
}

void Recorder::join_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (t_thread_has_ended || task == -1 || current() != nullptr || t_slot.joined != nullptr) return;
  const auto callback = own_callback();
  const auto tape = callback ? tapes_by_callback().find(*callback) : nullptr;
  if (tape == nullptr || tape->closed.load(std::memory_order_relaxed) || tape->thread == std::this_thread::get_id())
    return;
  t_slot.joined = std::make_unique<Recorder>(tape);
  t_slot.joined_task = task;
}

void Recorder::start(std::shared_ptr<Tape> tape) {
  if (t_thread_has_ended) {
    raise(Error("[session] this thread has ended but for static objects; no step can begin in their destructors"));
  }
  check_threads_are_fixed();
  choose_plain_tensors(tape->meta);
  tape->draws_watch = watch_draws();
  tape->thread = std::this_thread::get_id();
  tape->program.begin_settings(device::may_have_streams(tape->values.device));
  t_slot.recorder = std::make_unique<Recorder>(std::move(tape));
  // First, so that a kernel has ended before its operator is written down.
  if (t_slot.recorder->tape_->meta) {
    t_slot.recorder->meta_callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_meta_kernel_start, on_meta_kernel_end).scopes({at::RecordScope::FUNCTION}));
  }
  watch_operators(true);
}

void Recorder::stop() {
  choose_plain_tensors(/*meta=*/false);
  watch_operators(false);
  if (t_slot.recorder->tape_->meta) at::removeCallback(t_slot.recorder->meta_callback_);
  const std::shared_ptr<Tape> tape = t_slot.recorder->tape_;
  t_slot.recorder.reset();
  const std::lock_guard lock(tape->mutex);
  tape->collect();
  tape->values.stop_watching();
}

void Recorder::left_backward() {
  if (!t_thread_has_ended) watch_operators(t_slot.recorder != nullptr);
}

/// Looks at PyTorch's list of callbacks: a backward call restores that list as it was when the call began, so that the
/// callback of a step that ended in it is there again, and that of a step that began in it is gone.
void Recorder::watch_operators(bool watch) {
  const auto mine = own_callback();
  if (watch == mine.has_value()) return;
  if (watch) {
    const at::CallbackHandle callback = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                                                       .needsInputs(true)
                                                                       .needsOutputs(true)
                                                                       .scopes({at::RecordScope::FUNCTION}));
    tapes_by_callback().add(callback, t_slot.recorder->tape_);
  } else {
    at::removeCallback(*mine);
  }
}

std::optional<at::CallbackHandle> Recorder::own_callback() {
  for (const auto& entry : at::get_record_function_tls_().sorted_tls_callbacks_) {
    if (entry.callback_.start() == &Recorder::on_start) return entry.handle_;
  }
  return std::nullopt;
}

StepExtent::Activity Recorder::activity() {
  StepExtent::Activity activity;
  const Recorder* const recorder = current();
  if (recorder == nullptr) return activity;
  activity.watched = true;
  activity.records = !recorder->is_suspended();
  for (const Running& running : recorder->running_) {
    if (running.history != nullptr) activity.histories.push_back(running.history);
  }
  return activity;
}

}  // namespace remat
