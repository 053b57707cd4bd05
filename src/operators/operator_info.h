// src/operators/operator_info.h -- the facts about an operator that recording and replaying need, looked up once for
// each set of kernels that it has had.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include "operators/operator_kernels.h"
#include "operators/special_operator.h"
#include "pytorch/tensor_view.h"

namespace remat {

/// What a user has said of an operator (remat/operators.h).
enum class Declared : uint8_t { kNothing, kRepeatable, kNotRepeatable, kWritesArguments };

/// A way to repeat a call that takes less time, from results of the call that are still there.
struct Shortcut {
  uint32_t first = 0, count = 0;  ///< those results, which therefore are never evicted: so many from the first on
  float share = 1;                ///< of the seconds that the call took
  /// Puts the results of a call on the stack instead of its arguments, with the same bits; `kept` has the memory of
  /// those that it reads. False, and nothing is done, where that is not known to work with these arguments.
  bool (*repeat)(torch::jit::Stack& stack, c10::ArrayRef<StoragePtr> kept) = nullptr;

  bool reads(uint32_t result) const { return result >= first && result - first < count; }
};

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op) : handle(op), kernels(op) {}

  c10::OperatorHandle handle;
  OperatorKernels kernels;      ///< what follows is true of these
  std::string name;             ///< "aten::add.Tensor"
  size_t base_length = 0;       ///< length of "aten::add" in it
  bool never_recorded = false;  ///< views and composites: their parts are seen, or there is nothing to recompute
  bool reshapes = false;        ///< changes sizes and strides in place; counts as a write, and is none
  bool random = false;          ///< draws from a generator
  bool deterministic = true;    ///< gives the same bits for the same input, and is not a function from Python
  bool compute = false;         ///< matrix product, convolution, attention or recurrent layer
  bool products = false;        ///< may multiply matrices: oneDNN's precision switches may decide its bits
  bool foreign = false;         ///< not PyTorch's own, or its kernel is not: its schema and tags are not trusted
  bool own_autograd = false;    ///< may have a kernel of a user's at autograd's keys: a replay calls it there
  bool collective = false;      ///< communicates with other processes
  bool trusted = false;         ///< is not PyTorch's own, and does what its schema says all the same
  bool factory = false;         ///< makes a tensor for others to fill (empty, zeros_like ...), which nobody sees
  bool blank = false;           ///< makes memory without contents, which recorded operators alone write to
  bool fills_result = false;    ///< makes a tensor of nothing but its arguments (zeros, randn ...), a draw included
  bool overwrites = false;      ///< writes every element of what it writes to, and reads none of it
  bool two_valued = false;      ///< its floating-point results hold zeros and ones
  bool elementwise = false;     ///< with one tensor argument: maps equal elements to equal elements
  bool switches = false;        ///< may read PyTorch's switches for the whole process, see KernelSettings
  uint32_t argument_count = 0, result_count = 0;
  int16_t generator_argument = -1, dtype_argument = -1;
  bool several_generators = false;  ///< among its arguments, of which one's state is kept
  bool takes_options = false;       ///< type, layout, device of its result, as factories and what is like them do
  bool races = false;               ///< its threads may write to the same element: the order of the writes decides
  bool races_on_device = false;     ///< the same on other devices, as on CUDA, where more kernels add atomically
  int16_t workspace_result = -1;    ///< scratch for backward with padding that nobody reads: its bits may differ
  /// Arguments that the operator writes to, by position (a tensor or a list of tensors), statistics apart.
  c10::SmallVector<uint16_t, 2> written;
  /// Running statistics that the operator updates in training without reading them (batch normalization). A replay
  /// must not touch them: they are left out, or scratch copies where the schema wants a tensor.
  c10::SmallVector<uint16_t, 2> statistics;
  bool statistics_optional = false;
  int16_t training_argument = -1;
  const Shortcut* shortcut = nullptr;  ///< null: a replay calls the operator
  /// Of an operator of backward: could it write its result over its first argument, a gradient, where the node of
  /// autograd's graph with this name calls it? Null: never.
  bool (*reuses_gradient)(c10::ArrayRef<const c10::IValue> inputs, std::string_view node) = nullptr;

  // All that is learnt later; everything else is constant. For any thread.
  mutable std::atomic<Declared> declared{Declared::kNothing};
  mutable std::atomic<bool> contradicted{false};  ///< its schema is not true (operator_trial.h), or may not be
  mutable std::atomic<int> trials{0};             ///< calls that have been looked at
  /// Another thread waited in vain for the end of a call, which may have waited for that thread: from then on it has
  /// no section of its own (draw_section.h), and is not repeated, since what it draws is not known.
  mutable std::atomic<bool> meets_threads{false};
  mutable std::atomic<int> repeated{0};        ///< replays on devices that were found to give the same bits
  mutable std::atomic<int> first_results{0};   ///< on devices, whose checksums were taken before that was known
  mutable std::atomic<bool> varies{false};     ///< a replay on a device gave other bits
  mutable std::atomic<bool> registered{true};  ///< false: `handle` must not be used any more

  /// Is all of this true of the operator as it is registered now? Some nanoseconds.
  bool is_current() const { return registered.load(std::memory_order_relaxed) && kernels.are_in_force(); }
  bool is_declared_repeatable() const { return declared.load(std::memory_order_relaxed) == Declared::kRepeatable; }
  /// Must a call with these arguments not be repeated, where the kernel of another operator makes it either? (Those of
  /// prims, PyTorch's own Python functions, may be.)
  bool runs_once(c10::ArrayRef<const c10::IValue> inputs) const;
  /// May it draw without having said so?
  bool may_draw() const { return foreign && !collective && !meets_threads.load(std::memory_order_relaxed); }
  /// May replays run it?
  bool repeatable() const {
    const Declared said = declared.load(std::memory_order_relaxed);
    if (collective || several_generators || contradicted.load(std::memory_order_relaxed)) return false;
    if (meets_threads.load(std::memory_order_relaxed)) return false;
    if (said != Declared::kNothing) return said == Declared::kRepeatable;
    return deterministic && !varies.load(std::memory_order_relaxed);
  }
  /// May it write to tensors without saying so in its schema?
  bool writes_arguments() const {
    return contradicted.load(std::memory_order_relaxed) ||
           declared.load(std::memory_order_relaxed) == Declared::kWritesArguments;
  }

  /// The arguments and results of the call that `fn` observes. Of a boxed call it shows the caller's whole stack, of
  /// which they are the last (functorch's batching rules have others below). None where the call failed.
  c10::ArrayRef<const c10::IValue> arguments(const at::RecordFunction& fn) const {
    return last(fn.inputs(), argument_count);
  }
  c10::ArrayRef<const c10::IValue> results(const at::RecordFunction& fn) const {
    return last(c10::ArrayRef<const c10::IValue>(fn.outputs().data(), fn.outputs().size()), result_count);
  }

  /// Does a call with these arguments update running statistics?
  bool updates_statistics(c10::ArrayRef<const c10::IValue> inputs) const {
    return !statistics.empty() && (training_argument < 0 || inputs[static_cast<size_t>(training_argument)].toBool());
  }
  /// Does a call with these arguments, on so many threads, give the same bits each time?
  bool repeats(c10::ArrayRef<const c10::IValue> inputs, int threads) const;
  /// May such a call give other bits the next time, or must it run once, so that an operator that makes it does not
  /// repeat either?
  bool spoils_outer(c10::ArrayRef<const c10::IValue> inputs, int threads) const {
    return runs_once(inputs) || !repeatable() || may_race(inputs, threads);
  }
  std::string_view base_view() const { return std::string_view(name).substr(0, base_length); }
  std::string base_name() const { return std::string(base_view()); }
  bool writes(size_t argument) const {
    for (const auto w : written) {
      if (w == argument) return true;
    }
    return false;
  }

 private:
  bool may_race(c10::ArrayRef<const c10::IValue> inputs, int threads) const;
  /// Is a kernel that these arguments are given a function of a user's whose results may depend on more?
  bool calls_opaque(c10::ArrayRef<const c10::IValue> inputs) const;
  static c10::ArrayRef<const c10::IValue> last(c10::ArrayRef<const c10::IValue> values, size_t count) {
    return values.slice(values.size() - std::min(values.size(), count));
  }
};

/// The facts about the operator that `fn` observes, with the kernels that it has now; nullptr if it observes something
/// else. Thread-safe; the result lives as long as the process.
const OperatorInfo* operator_info(const at::RecordFunction& fn);
/// The same of a registered operator; nullptr if there is none of that name.
const OperatorInfo* operator_info(const c10::OperatorName& name);

/// From now on a user says this of the operators that `name` names. Throws Error as remat/operators.h says.
void declare_operator(const std::string& name, Declared declared);

/// True if `name` is that of a registered operator, and calls of any overload of it, with any arguments and on any
/// number of threads, repeat.
bool is_repeatable_operator(const std::string& name);

}  // namespace remat
