// src/observe/operator_trial.h -- does an operator that is not PyTorch's do what its schema says? Its first calls show.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>

#include "operators/operator_info.h"
#include "pytorch/tensor_view.h"
#include "tape/call.h"

namespace remat {

/// One call under observation: the inputs that the schema does not mark as written to shall be the same afterwards, and
/// the results in memory of their own where the schema does not say otherwise. Tensors on the CPU alone.
class OperatorTrial {
 public:
  /// Should this call be looked at? Counts it as one of the operator's first calls.
  static bool is_due(const OperatorInfo& info);

  OperatorTrial() = default;
  /// Takes checksums of the inputs.
  OperatorTrial(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);

  /// After the call: where it did what the schema rules out.
  std::vector<Contradiction> contradictions(c10::ArrayRef<const c10::IValue> outputs) const;

 private:
  struct Input {
    StoragePtr storage;
    ByteRange range;
    size_t bytes = 0;  ///< of the storage
    uint64_t checksum = 0;
  };
  std::vector<Input> inputs_;
  bool may_alias_;
};

}  // namespace remat
