// src/tiers/parameter_update.h -- an optimizer's update of one parameter, by the optimizer's own code.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace remat {

/// Does each update depend on the parameter's own gradient and state alone, and each element's on that element's? So do
/// those of SGD, Adam, AdamW, RMSprop and Adagrad, but not of derived classes, which may do anything.
bool updates_one_by_one(const torch::optim::Optimizer& optimizer);
/// Throws Error, which begins with `where`, unless it does. `otherwise`: what else the user may do.
void check_updates_one_by_one(const torch::optim::Optimizer& optimizer, const std::string& where,
                              const std::string& otherwise = "");
/// Throws Error, which begins with `where`, for a parameter that is not on the CPU. `what`: "state in a file is".
void check_on_host(const at::Tensor& parameter, const std::string& where, const std::string& what);

/// Calls function(parameter, group) for each parameter that the optimizer has now, with the index of its group.
template <class Function>
void for_each_parameter(torch::optim::Optimizer& optimizer, const Function& function) {
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto parameters = optimizer.param_groups()[group].params();
    for (const auto& parameter : parameters) function(parameter, group);
  }
}

/// Calls step() as if `parameter`, in the group at `group`, was all that the optimizer has.
void update_alone(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter);
/// The same by parts_of() the parameter, so that temporary tensors are small; of an optimizer that
/// updates_one_by_one().
void update_in_parts(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter);

}  // namespace remat
