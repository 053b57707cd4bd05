// remat/extension.h -- for those who bind remat to another language or framework: what happens to tensors beside
// operators, and how errors leave operators. Programs that train need none of it.
//
// All of it is thread-safe.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <remat/session.h>

namespace remat::extension {

// ---- What is recorded ----

/// Does this thread record the operators that it runs (a step, or a policy scope, is open on it)?
bool is_recording();
/// Operators that this thread's record has so far, of which the next one is to get this number; -1 where it does not
/// record. For whoever knows what the operators belong to, such as layers.
int64_t recorded_operators();
/// Are this thread's operators looked at? That costs each some time; it should be so only where is_recording() is.
bool is_watching_operators();
/// Is there a record of any thread from which backward passes may still recompute values? Where there is none,
/// hand_out() and announce_write() have nothing to do.
bool is_anything_recorded();

/// May replays run the operator that `name` names ("aten::mm"), in all of its overloads and with any arguments? False
/// for a name that no registered operator has.
bool is_repeatable(const std::string& name);

/// Is the operator of this name ("aten::std") and overload (maybe empty) recorded where a step calls it? Not so views,
/// and those that are made of others, which are recorded in its place. False where no such operator is registered.
bool is_recorded_operator(const std::string& name, const std::string& overload);

/// Is `tensor` memory without contents that compiled code has allocated while this thread was recording, with no
/// operator that has written to it since?
bool is_unwritten(const at::Tensor& tensor);

/// A compiler begins to work. Steps during which one did are not what plans for later steps are made of.
void note_compilation();
/// How often one did in this process.
int64_t compilations();

/// Kernels that write to tensors through pointers, such as compiled ones, are at work on this thread: nothing is
/// recorded, what they make is kept and never recomputed, and writes to recorded tensors are seen. Regions nest.
class OpaqueRegion {
 public:
  OpaqueRegion();
  ~OpaqueRegion();
  OpaqueRegion(const OpaqueRegion&) = delete;
  OpaqueRegion& operator=(const OpaqueRegion&) = delete;
  /// On the thread of the constructor. A second call does nothing.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Code that a compiler made runs on this thread, and the operators that it calls are recorded. Nobody is given
/// pointers to what they make before the region ends: no checksum is taken where an operator reads it there, to tell
/// later whether somebody has written to it unseen. Regions nest.
class CompiledRegion {
 public:
  CompiledRegion();
  ~CompiledRegion();
  CompiledRegion(const CompiledRegion&) = delete;
  CompiledRegion& operator=(const CompiledRegion&) = delete;
  /// On the thread of the constructor. A second call does nothing.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- Steps that follow the calls of a model ----

/// A step of whoever finds the beginnings and ends of steps by the calls of a model, as Python's remat.wrap() does. It
/// refers to the step, which must not be moved.
class CalledStep {
 public:
  /// Of a step in progress, which must outlive it.
  explicit CalledStep(const Step& step) : step_(step) {}

  /// A forward call of the step's model begins. From the first one on, only what belongs to these calls is refused
  /// memory: the calls, operators whose inputs' gradients lead into them, and backward passes that do. For anything
  /// else values are evicted as before, and where that is not enough, its allocation passes the budget. A backward pass
  /// of the step that fails ends the step. So does, between calls and backward passes, that no values are left of those
  /// that the calls have saved: completed if backward_passes() is not 0. On the step's thread; calls do not nest.
  /// `goes_on`: asked on that thread before memory is refused for the call's sake; false where the call was left
  /// without leave_forward(), as by an interrupt.
  void enter_forward(std::function<bool()> goes_on = {}) const;
  /// The forward call that enter_forward() began has ended.
  void leave_forward() const;
  /// How many backward passes through what the forward calls have made have ended without an exception. Thread-safe.
  int backward_passes() const;
  /// A model that has a budget of its own, of `bytes`, is called inside of the step: the smaller budget holds until the
  /// step ends. `name`: what messages call the model's session. On the step's thread.
  void hold_under(int64_t bytes, const std::string& name) const;
  /// Has a BudgetError been thrown for anything in this step, which has not ended?
  bool was_refused() const;

 private:
  const Step& step_;
};

// ---- What happens to memory ----

/// The memory of `tensor` is about to be given to somebody who may read and write it as such, as by .numpy() and
/// DLPack: its contents are no longer read by recomputes.
void hand_out(const at::Tensor& tensor);
/// Somebody is about to write to `tensor` in a way that is no operator.
void announce_write(const at::Tensor& tensor);
/// Somebody looks whether there are references to `tensor` that he does not know of, weak ones too, as
/// torch.utils.swap_tensors() does: remat has none from now on, until a step reads it again.
void let_go(const at::Tensor& tensor);
/// Counts memory that remat's allocator did not make (a file's, another process's) until it is freed, where that is of
/// the CPU and not counted yet. It may pass the limit: the memory exists.
void count_memory(const at::Tensor& tensor);
void count_memory(c10::StorageImpl& storage);

// ---- Tensors made of tensors ----

/// A tensor of a subclass that wraps others, as DTensor does, taken apart.
struct TensorParts {
  std::vector<at::Tensor> parts;  ///< which hold the contents
  /// Makes a tensor of parts that look like these: of the same class, with the same sizes and strides, without autograd
  /// history. May be called on any thread, and more than once.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> assemble;
};
/// Takes `tensor`, whose dispatch is up to Python, apart; none where that cannot be done, and it is kept as it is. May
/// be called on any thread.
using TensorTaker = std::optional<TensorParts> (*)(const at::Tensor& tensor);
/// What autograd saves of such a tensor is its parts then, which can be dropped. For the rest of the process; call it
/// before the first step. Default: none.
void set_tensor_taker(TensorTaker taker);

// ---- Locks ----

/// How a thread lets go of the interpreter's lock, which what the interpreter owns is destroyed with: threads that wait
/// for what another one has locked do so without it. And how a wait that may be long is interrupted.
struct InterpreterLock {
  /// Releases it where this thread holds it, and returns what `acquire` takes; null where it does not.
  void* (*release)();
  /// Takes it again; `released` is what `release` gave.
  void (*acquire)(void* released);
  /// Throws where the user has interrupted this thread, as by Ctrl-C. Called about ten times a second, without the
  /// lock, by a thread that waits for other steps of its pool. Null: such a wait cannot be interrupted.
  void (*check_interrupt)() = nullptr;
};
/// For the rest of the process; call it before the first step. Default: none.
void set_interpreter_lock(InterpreterLock lock);

// ---- How errors leave operators ----

/// Throws something that stands for `error`. What it throws must have an ErrorInFlight.
using ErrorTranslator = void (*)(const std::exception& error);
/// For errors that pass through PyTorch's bindings of another language, which turn exceptions that they do not know
/// into those of one kind. For the rest of the process; call it before the first step. Default: none.
void set_error_translator(ErrorTranslator translator);

/// A part of every exception that a translator throws. While one lives, TorchScript passes on the exceptions that it
/// meets, those of other threads included, as they are: otherwise it turns every exception into std::runtime_error.
class ErrorInFlight {
 public:
  ErrorInFlight() noexcept;
  ErrorInFlight(const ErrorInFlight& /*other*/) noexcept : ErrorInFlight() {}
  ErrorInFlight& operator=(const ErrorInFlight&) = default;
  ~ErrorInFlight();
};

}  // namespace remat::extension
