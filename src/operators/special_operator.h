// src/operators/special_operator.h -- operators that get a treatment of their own, each in one file of this folder.
//
// The engine asks for facts (operator_info.h) and hooks, and knows no operator by name. Without one of the files it is
// as correct, and less efficient: operators of which the facts are in doubt then are not replayed. A file is left out
// by taking it from the list in special_operator.cpp, or for one process by the environment: REMAT_WITHOUT names those
// to leave out, as "batch_norm,collectives" (for tests).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

namespace remat {

struct OperatorInfo;

/// What an operator may do without its schema saying so.
enum class Doubt : uint8_t {
  kNone,
  kCommunication,  ///< it communicates with other processes, and may write to its tensors until it has been waited for
  kStatistics,     ///< it updates running statistics
  kPadding,        ///< it leaves a part of a result undefined: the bits differ from call to call
};

/// What kernels of special operators ask the engine, which stands above this folder. Thread-safe.
struct Engine {
  /// May the operator of backward that is about to run on this thread write its result over `gradient`? Once for each
  /// call: where the answer is yes it has to.
  bool (*may_write_over)(const at::Tensor& gradient) = nullptr;
  /// A collective is about to begin on this thread, and must not if this throws. Where a step takes part, calls
  /// `make_room` first, which allocates, and frees again, what the collective is going to allocate on other threads.
  void (*before_collective)(std::string_view name, c10::function_ref<void()> make_room) = nullptr;
};

/// For whom kernels are installed.
struct Installation {
  const Engine& engine;    ///< lives as long as the process
  c10::DeviceType device;  ///< the session's
  bool has_ranks;          ///< the session is one of several processes' that take their steps together
};

/// Hooks may be null.
struct SpecialOperator {
  std::string_view name;         ///< its file's
  Doubt settles = Doubt::kNone;  ///< describe() says of all operators whether they do this
  /// Adds facts about an operator, of which `info` has the name, the counts and the kernels. Called for every operator,
  /// once for each set of kernels that it has.
  void (*describe)(OperatorInfo& info) = nullptr;
  /// Finds out what works here; the first call may allocate some kilobytes. Called before anything is recorded.
  void (*check)() = nullptr;
  /// Replaces PyTorch's kernels, for as long as the returned object lives; null: for as long as the process, or none.
  /// Called for each session.
  std::shared_ptr<const void> (*install)(const Installation& installation) = nullptr;
};

namespace special {
extern const SpecialOperator kBatchNorm, kCollectives, kCompiledCode, kRecurrent, kSoftmaxInPlace;
}  // namespace special

/// Those that are not left out. Throws Error if REMAT_WITHOUT names others than there are.
c10::ArrayRef<const SpecialOperator*> special_operators();

/// Does one of them settle this doubt?
bool is_settled(Doubt doubt);

/// Calls check() of each.
void check_special_operators();

/// Calls install() of each. What it returns holds the kernels that are not there for ever.
std::vector<std::shared_ptr<const void>> install_special_operators(const Installation& installation);

}  // namespace remat
