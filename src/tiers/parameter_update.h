// src/tiers/parameter_update.h -- an optimizer's update of one parameter, by the optimizer's own code.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace remat {

/// Does each update depend on the parameter's own gradient and state alone, and each element's on that element's? So do
/// those of SGD, Adam, AdamW, RMSprop and Adagrad, but not of derived classes, which may do anything.
bool updates_one_by_one(const torch::optim::Optimizer& optimizer);
/// Calls step() as if `parameter`, in the group at `group`, was all that the optimizer has.
void update_alone(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter);
/// The same by parts_of() the parameter, so that temporary tensors are small; of an optimizer that
/// updates_one_by_one().
void update_in_parts(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter);

}  // namespace remat
