// src/replay/operator_call.h -- calls one recorded operator again, with its arguments and the settings in force then.
#pragma once

#include <vector>

#include <ATen/core/stack.h>
#include <c10/util/flat_hash_map.h>

#include "pytorch/kernel_settings.h"
#include "tape/generator_state.h"
#include "tape/tape.h"

namespace remat {

/// Contents that a recompute in progress needs.
struct HeldStorage {
  StoragePtr storage;  ///< null while the tape keeps it, so that it can be evicted between two operators
  uint32_t uses = 0;   ///< reads by operators that have not run yet
};
using HeldStorages = ska::flat_hash_map<ValueId, HeldStorage>;

class OperatorCall {
 public:
  /// Takes from the tape what the call needs: while it runs, another thread may let the tape's arrays grow. `held` has
  /// the storages of all values that the operator reads; one that it writes to is taken out where nobody else needs
  /// it, else copied. Throws Error where an input is not what it was. REQUIRES: tape's mutex.
  OperatorCall(Tape& tape, OperationId id, HeldStorages& held);

  /// Once. Throws what the operator throws, and Error where it drew other random numbers than in the forward pass.
  /// REQUIRES that the caller does not hold the tape's mutex.
  void run();

  const Operation& operation() const { return operation_; }
  const torch::jit::Stack& results() const { return stack_; }          ///< after run()
  const std::vector<StoragePtr>& written() const { return written_; }  ///< by index of the written arguments

 private:
  void build_stack(const Tape& tape, HeldStorages& held);
  void find_kept(Tape& tape);
  void call_kernel();

  Operation operation_;
  torch::jit::Stack stack_;
  std::vector<StoragePtr> written_;
  GeneratorRecord generator_;
  KernelSettings settings_;
  std::vector<StoragePtr> kept_;  ///< the results that the operator's shortcut reads; empty: it cannot be taken
};

}  // namespace remat
