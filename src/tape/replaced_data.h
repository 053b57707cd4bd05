// src/tape/replaced_data.h -- tensors whose data was replaced (`tensor.data = other`) while saved tensors may refer to
// them.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/TensorImpl.h>
#include <c10/util/flat_hash_map.h>

namespace remat {

/// Moments are counted in tensors that autograd has saved so far. Not thread-safe: protected by the tape's mutex.
class ReplacedData {
 public:
  void add(const c10::TensorImpl& tensor, int64_t moment) {
    by_tensor_[&tensor].push_back({tensor.version_counter(), moment});
  }
  /// Was the data of the tensor replaced after the moment `saved_at`? Its address alone does not tell which tensor it
  /// is, since another one may have had it before or after; its version counter, which `counter` shares, does.
  bool is_replaced(const c10::TensorImpl* tensor, const c10::VariableVersion& counter, int64_t saved_at) const;

 private:
  struct Replacement {
    c10::VariableVersion counter;
    int64_t moment;
  };
  ska::flat_hash_map<const c10::TensorImpl*, std::vector<Replacement>> by_tensor_;
};

}  // namespace remat
