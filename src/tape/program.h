// src/tape/program.h -- a step's operators as they were called, in the order of execution: what a replay needs to
// call them again.
//
// Flat arrays, so that ascending operator ids are a topological order and recording one operator costs few allocations.
// An operator names a range of arguments; an argument is a constant, a tensor, or a range of tensors.
//
// Not thread-safe: protected by the tape's mutex.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "operators/operator_info.h"
#include "pytorch/kernel_settings.h"
#include "pytorch/tensor_view.h"

namespace remat {

using ValueId = uint32_t;
using OperationId = uint32_t;
inline constexpr uint32_t kNoId = std::numeric_limits<uint32_t>::max();

struct TensorArgument {
  ValueId value = kNoId;    ///< kNoId: see the others; an undefined tensor if none is set
  uint32_t opaque = kNoId;  ///< place of a tensor that is held whole, because a view cannot describe it
  uint32_t version = 0;     ///< of the opaque tensor when it was read
  bool blank = false;       ///< an empty tensor for the operator to fill and resize
  uint64_t checksum = 0;  ///< of the bytes read, where pointers may write to them, or of an opaque one's parts; 0: none
  bool shape_only = false;  ///< the operator does not read the contents (empty_like)
  TensorView view;          ///< of `value`, or of a tensor without contents
};

struct Argument {
  enum class Kind : uint8_t { kConstant, kTensor, kTensorList, kOptionalTensorList, kStatistics };
  Kind kind = Kind::kConstant;
  uint32_t first = 0;  ///< place among the constants or tensors
  uint32_t count = 0;  ///< tensors
};

struct Operation {
  const OperatorInfo* info = nullptr;  ///< null: nothing can ask for the results any more, see Program::forget()
  uint32_t first_argument = 0, argument_count = 0;
  ValueId first_value = 0;  ///< its results are values first_value ... first_value + value_count
  uint32_t value_count = 0;
  bool grad_mode = true;            ///< some kernels choose by it
  bool reads_default_type = false;  ///< computes in the type that factories make tensors of
  bool below_autograd = false;      ///< autograd's kernels were left out
  bool below_views = false;         ///< those for views and writes in place were
  float seconds = 0;                ///< measured when it was recorded
  uint32_t generator = kNoId;       ///< place of the state that its generator had
  uint32_t settings = 0;            ///< place of the settings that were in force
  uint32_t visit = 0;               ///< stamp of the last search that met it

  /// Seconds that a replay of it takes.
  float replay_seconds() const {
    const bool shorter = info->shortcut != nullptr && value_count == info->result_count;
    return shorter ? info->shortcut->share * seconds : seconds;
  }
};

struct GeneratorRecord {
  at::Generator generator;
  at::Tensor state;    ///< before the operator ran
  uint64_t drawn = 0;  ///< the checksum of the state after it; while it runs, of the one before
};

class Program {
 public:
  Program() = default;
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Reading.

  size_t size() const { return operations_.size(); }
  const Operation& operator[](OperationId id) const { return operations_[id]; }
  void set_seconds(OperationId id, float seconds) { operations_[id].seconds = seconds; }
  auto begin() const { return operations_.begin(); }
  auto end() const { return operations_.end(); }
  c10::ArrayRef<Argument> arguments(const Operation& operation) const {
    return c10::ArrayRef<Argument>(arguments_).slice(operation.first_argument, operation.argument_count);
  }
  const c10::IValue& constant(const Argument& argument) const { return constants_[argument.first]; }
  c10::ArrayRef<TensorArgument> tensors(const Argument& argument) const {
    return c10::ArrayRef<TensorArgument>(tensors_).slice(argument.first, argument.count);
  }
  const at::Tensor& opaque(const TensorArgument& argument) const { return opaque_[argument.opaque]; }
  const GeneratorRecord& generator(const Operation& operation) const { return generators_[operation.generator]; }
  /// Has the state of any generator been kept?
  bool has_generators() const { return !generators_.empty(); }
  const KernelSettings& settings(const Operation& operation) const { return settings_[operation.settings]; }
  /// Calls visit(tensor, position of its argument) for all tensors of one operation.
  template <class Visit>
  void for_each_tensor(const Operation& operation, Visit&& visit) const {
    for (uint32_t a = 0; a < operation.argument_count; ++a) {
      const Argument& argument = arguments_[operation.first_argument + a];
      for (uint32_t t = 0; t < argument.count; ++t) visit(tensors_[argument.first + t], a);
    }
  }
  /// Calls visit(value) for all values that one operation reads, as often as it reads them.
  template <class Visit>
  void for_each_value(const Operation& operation, Visit&& visit) const {
    for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
      if (t.value != kNoId) visit(t.value);
    });
  }
  /// Calls visit(tensor) for all tensors from place `first` on.
  template <class Visit>
  void for_each_tensor_from(size_t first, Visit&& visit) const {
    for (size_t t = first; t < tensors_.size(); ++t) visit(tensors_[t]);
  }
  /// Bytes of the arrays and the generator states.
  int64_t bytes() const;
  /// Throws InternalError where an index is out of range. For tests and debugging: takes linear time.
  void validate() const;

  // Searches through the operators mark with a stamp of their own where they have been.

  uint32_t next_stamp() { return ++stamp_; }
  bool is_stamped(OperationId id, uint32_t stamp) const { return operations_[id].visit == stamp; }
  uint32_t& stamp(OperationId id) { return operations_[id].visit; }

  // Recording. First an operator's arguments are added, in their order; then, when it has run, the operator.

  /// How far the arrays of arguments reach.
  struct Mark {
    size_t arguments = 0, tensors = 0, constants = 0, opaque = 0, generators = 0;
    bool operator==(const Mark&) const = default;
  };
  Mark mark() const {
    return {arguments_.size(), tensors_.size(), constants_.size(), opaque_.size(), generators_.size()};
  }
  void add_constant_argument(c10::IValue value);
  /// An argument of the tensors that were added since `mark`.
  void add_tensor_argument(Argument::Kind kind, const Mark& mark);
  /// The reference is valid until the next call.
  TensorArgument& add_tensor() { return tensors_.emplace_back(); }
  uint32_t add_opaque(at::Tensor tensor);
  uint32_t add_generator(GeneratorRecord record);
  GeneratorRecord& generator(uint32_t place) { return generators_[place]; }
  /// Recording begins under the settings that are in force now, of a step on a device with streams or without.
  void begin_settings(bool has_streams);
  const KernelSettings& first_settings() const { return settings_.front(); }
  /// Does it read switches of the process that have changed since recording began?
  bool reads_changed_switches(const Operation& operation) const;
  /// The place of the settings that are in force for an operator.
  uint32_t add_settings(const OperatorInfo& info);
  /// Of an operation whose arguments were added last.
  void set_constant(const Operation& operation, size_t argument, c10::IValue value) {
    constants_[arguments_[operation.first_argument + argument].first] = std::move(value);
  }
  void add(const Operation& operation) { operations_.push_back(operation); }

  // Forgetting.

  /// The arguments captured between two marks: frees what they hold, and their places if they are the last.
  void erase(const Mark& begin, const Mark& end);
  /// Nothing can ask for the operation's results any more: frees what its arguments hold.
  void forget(OperationId id);
  /// Frees the state that the operation's generator had. Returns its bytes.
  int64_t release_generator(OperationId id);
  /// Would forget() free memory: the generator's state, or tensors that nobody else holds?
  bool holds_memory(OperationId id) const;

 private:
  std::vector<Operation> operations_;
  std::vector<Argument> arguments_;
  std::vector<TensorArgument> tensors_;
  std::vector<c10::IValue> constants_;
  std::vector<at::Tensor> opaque_;
  std::vector<GeneratorRecord> generators_;
  std::vector<KernelSettings> settings_;  ///< one more each time that they change
  uint32_t stamp_ = 0;
};

}  // namespace remat
