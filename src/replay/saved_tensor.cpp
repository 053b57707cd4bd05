#include "replay/saved_tensor.h"

#include <optional>
#include <string>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <remat/support/number_text.h>
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "observe/step_extent.h"
#include "pytorch/autograd_engine.h"
#include "pytorch/raise.h"
#include "replay/move_in.h"
#include "replay/replay.h"
#include "tape/trace.h"

namespace remat {
namespace {

/// While it lives, tensors are made as outside of c10::InferenceMode, under which somebody may call backward or ask for
/// a saved tensor: those that were saved are no inference tensors, replays call the kernels that forward called.
class OutsideInferenceMode {
 public:
  OutsideInferenceMode() {
    if (!c10::InferenceMode::is_enabled()) return;
    const bool grad_mode = c10::GradMode::is_enabled();
    outside_.emplace(/*enabled=*/false);  // which switches it on
    c10::GradMode::set_enabled(grad_mode);
  }
  bool was_inside() const { return outside_.has_value(); }

 private:
  std::optional<c10::InferenceMode> outside_;
};

}  // namespace

SavedTensor::~SavedTensor() {
  // Before the lock: where Python holds the tensor too, releasing it may take the interpreter's lock, whose owner may
  // be waiting for the tape's. And before remove_saved(), which looks whether the value is in use.
  alias_ = at::Tensor();
  bool last = false;
  {
    const std::lock_guard lock(tape_->mutex);
    if (unbound_) {
      if (auto* const recorder = Recorder::current(); recorder != nullptr) recorder->calls().forget(*this);
    }
    if (tape_->trace != nullptr) tape_->trace->find_idle(tape_->values, /*between_frees=*/true);
    if (value_ != kNoId) tape_->remove_saved(value_, unpacked_in_);
    tape_->drop_idle();
    last = value_ != kNoId && tape_->live_values() == 0;
  }
  if (last && tape_->extent != nullptr) tape_->extent->end_if_released();
}

std::atomic<extension::TensorTaker>& tensor_taker() {
  static std::atomic<extension::TensorTaker> taker{nullptr};
  return taker;
}

bool SavedTensor::take_apart(const at::Tensor& tensor) {
  const auto taker = tensor_taker().load();
  // A parameter is held itself: its optimizer and custom functions know it.
  const bool wraps = tensor.unsafeGetTensorImpl()->is_python_dispatch();
  if (!wraps || taker == nullptr || (tensor.is_leaf() && tensor.requires_grad())) return false;
  auto taken = taker(tensor);
  if (!taken) return false;
  assemble_ = std::move(taken->assemble);
  for (const at::Tensor& part : taken->parts) {
    parts_.push_back(std::make_unique<SavedTensor>(tape_));
    parts_.back()->call_pack_hook(part);
  }
  return true;
}

void SavedTensor::call_pack_hook(const at::Tensor& tensor) {
  const Recorder::Suspension own_calls_pass;
  needs_gradient_ = tensor.requires_grad();
  if (take_apart(tensor)) {
    version_counter_ = tensor.unsafeGetTensorImpl()->version_counter();
    version_ = version_counter_.current_version();
    return;
  }
  const std::lock_guard lock(tape_->mutex);
  const bool versioned = !tensor.is_inference();
  if (versioned) {
    version_counter_ = tensor.unsafeGetTensorImpl()->version_counter();
    version_ = version_counter_.current_version();
  }
  saved_ = tensor.unsafeGetTensorImpl();
  saved_at_ = ++tape_->saves;
  if (versioned && is_plain(tensor)) {
    auto* const recorder = Recorder::current();
    // An operator that is still running may be making it, or writing to it.
    unbound_ = recorder != nullptr && recorder->tape() == tape_ &&
               recorder->calls().bind_later(*this, *tensor.unsafeGetTensorImpl());
    if (!unbound_ && bind_to(tensor)) return;
  }
  // A leaf of the graph is held itself, as autograd would: set_data() on it must show. Anything else could own this.
  alias_ = tensor.is_leaf() ? tensor : history_free(tensor);
}

void SavedTensor::bind() {
  unbound_ = false;
  if (bind_to(alias_)) alias_ = at::Tensor();
}

bool SavedTensor::bind_to(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = storage_of(impl);
  const ValueId id = tape_->values.find(storage);
  if (id != kNoId && tape_->values[id].is_unavailable()) tape_->hold_unavailable(id, StoragePtr::reclaim_copy(storage));
  if (id == kNoId || !tape_->values[id].is_recomputable()) return false;  // not ours to evict: stays as it is
  if (tape_->values[id].is_written_unseen() || tape_->values.emptied(id))
    return false;  // no replay gives these contents
  if (tape_->needs_lost_leaf(id) || !tape_->values.is_defined(id, impl)) {
    tape_->make_leaf(id, StoragePtr::reclaim_copy(storage));
    return false;
  }
  value_ = id;
  view_ = TensorView(impl);
  unpacked_in_ = tape_->add_saved(id, StoragePtr::reclaim_copy(storage));
  return true;
}

std::string SavedTensor::description() const {
  std::string text = "a tensor that was saved for backward";
  if (value_ != kNoId) {
    const auto& value = tape_->values[value_];
    if (value.producer != kNoId) text += ", a result of " + tape_->program[value.producer].info->name + ",";
  }
  text += " of shape ";
  if (value_ != kNoId) return text + support::list_text(view_.shape.sizes_arrayref());
  const auto sizes = c10::asIntArrayRefSlowOpt(alias_.sym_sizes());
  return text + (sizes ? support::list_text(*sizes) : "that is not known");
}

void SavedTensor::check_version() const {
  if (!version_counter_.enabled() || version_counter_.current_version() == version_) return;
  std::string message =
      "[backward] " + description() + " has been modified by an in-place operation: it is at version " +
      std::to_string(version_counter_.current_version()) + ", it was saved at version " + std::to_string(version_) +
      "; use the operation that is not in-place, or clone the tensor before it";
  const auto* const ledger = tape_->values.ledger;
  if (ledger != nullptr && ledger->updates() > 0) {
    message += "; backward has updated parameters (optimizer_in_backward): use these without detach()";
  }
  raise(Error(message));
}

/// Plain would read what the tensor has now, where it is not a result that its own operator saved.
void SavedTensor::check_data() const {
  std::string what;
  {
    const std::lock_guard lock(tape_->mutex);
    const bool holds_itself = alias_.defined() && alias_.unsafeGetTensorImpl() == saved_;
    if (holds_itself || !tape_->is_replaced(saved_, version_counter_, saved_at_)) return;
    what = description();
  }
  raise(Error("[backward] " + what +
              " was given other contents by assigning to its .data (set_data); write to it by an "
              "operator such as copy_(), or assign after backward"));
}

at::Tensor SavedTensor::call_unpack_hook() {
  const OutsideInferenceMode as_forward;
  Recorder::join_backward();
  if (tape_->extent != nullptr) tape_->extent->on_unpack();
  check_version();
  const bool wraps = assemble_ || (alias_.defined() && alias_.unsafeGetTensorImpl()->is_python_dispatch());
  // Autograd is going to detach it, by an operator of its class, and cannot take what that gives under the mode.
  if (wraps && needs_gradient_ && as_forward.was_inside()) {
    raise(
        Error("[backward] a tensor that wraps others (such as DTensor) was saved for backward, and PyTorch cannot give "
              "it back under inference_mode; call backward outside of it, or under no_grad"));
  }
  return unpack();
}

at::Tensor SavedTensor::unpack() {
  if (assemble_) {
    std::vector<at::Tensor> parts;
    for (const auto& part : parts_) parts.push_back(part->unpack());  // autograd knows the version of the whole alone
    const Recorder::Suspension own_calls_pass;
    at::Tensor whole = assemble_(parts);
    whole.unsafeGetTensorImpl()->set_version_counter(version_counter_);
    return whole;
  }
  check_data();
  // The very tensor, where it is a leaf: a custom function may keep things on it. (Where it needs a gradient, autograd
  // makes another of it.)
  if (value_ == kNoId) {
    const bool empty = alias_.sym_numel().maybe_as_int() == 0;  // the size may be a symbol, while torch.compile traces
    at::Tensor tensor = alias_.is_leaf() && !empty ? alias_ : history_free(alias_);
    // cummax() and others give an input that is empty back as its gradient, which then is written to in place: in plain
    // a copy, since autograd sees that it is not the only one to hold it.
    if (empty && !tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(version_));
    }
    return tensor;
  }
  ValueId id = kNoId;
  StoragePtr storage;
  bool others_come = false;
  {
    const std::lock_guard lock(tape_->mutex);
    tape_->drop_idle();
    // Written to in place through an alias with a count of its own: plain would read the new contents.
    id = tape_->values.latest(value_);
    if (tape_->trace != nullptr) tape_->trace->used(id);
    storage = tape_->values.emptied(id);  // plain would read the new contents
    others_come = tape_->moves && tape_->moves->note_used(id);
    if (others_come && storage == nullptr) storage = tape_->values.alive(id);  // nothing takes it away from here on
  }
  if (others_come) begin_to_come(*tape_);
  if (storage == nullptr) storage = materialize(*tape_, id);
  at::Tensor tensor = view_.over(storage);
  tensor.unsafeGetTensorImpl()->set_version_counter(version_counter_);
  const std::lock_guard lock(tape_->mutex);
  tape_->values.streams.used(*storage);
  const uint32_t round = tape_->values[id].needs.round;
  if (unpacked_in_ == round) return tensor;
  unpacked_in_ = round;
  // Else its graph is about to be freed, and none has been made that may have saved the value again.
  const bool again = torch::autograd::get_current_graph_task_keep_graph() || c10::GradMode::is_enabled();
  tape_->note_unpacked(id, again);
  return tensor;
}

void install_saved_tensors() {
  const auto make = []() -> std::unique_ptr<torch::autograd::SavedVariableHooks> {
    const Recorder* const recorder = Recorder::current();
    return recorder == nullptr ? nullptr : std::make_unique<SavedTensor>(recorder->tape());
  };
  install_autograd_engine({make, &Recorder::left_backward});
}

}  // namespace remat
