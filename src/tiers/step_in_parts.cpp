#include <remat/step_in_parts.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <torch/optim/optimizer.h>

#include "tiers/parameter_parts.h"
#include "tiers/parameter_update.h"

namespace remat {
namespace {

/// May `state` be looked at in parts of `parameter`?
bool is_laid_out_as(torch::optim::OptimizerParamState& state, const at::Tensor& parameter) {
  return std::ranges::all_of(tensors_of(state), [&](const at::Tensor* tensor) {
    return !tensor->defined() || (tensor->is_contiguous() && tensor->sizes() == parameter.sizes());
  });
}

/// Updates a parameter part by part. Each part's state is a slice of the whole, or goes into one that is made now.
class PartedUpdate {
 public:
  PartedUpdate(torch::optim::Optimizer& optimizer, const at::Tensor& parameter)
      : optimizer_(optimizer), states_(optimizer.state()), parameter_(parameter) {
    const auto before = states_.find(parameter.unsafeGetTensorImpl());
    if (before == states_.end()) return;
    before_ = before->second->clone();
    for (const at::Tensor* tensor : tensors_of(*before_)) whole_.push_back(*tensor);
  }

  void run(size_t group, const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const at::Tensor target = part_of(parameter_, part);
      void* const key = target.unsafeGetTensorImpl();
      states_.erase(key);  // of a parameter that is gone, whose address this is now
      if (before_) states_[key] = state_of(part);
      try {
        update_alone(optimizer_, group, target);
      } catch (...) {
        states_.erase(key);
        throw;
      }
      const auto made = states_.find(key);
      if (made == states_.end()) continue;
      after_ = std::move(made->second);
      states_.erase(made);
      collect(part);
    }
    if (!after_) return;
    const auto tensors = tensors_of(*after_);
    for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = whole_[i];
    states_[parameter_.unsafeGetTensorImpl()] = std::move(after_);
  }

 private:
  using State = std::unique_ptr<torch::optim::OptimizerParamState>;

  State state_of(const Part& part) const {
    State state = before_->clone();
    for (at::Tensor* tensor : tensors_of(*state)) {
      if (tensor->defined()) *tensor = slice(tensor->view(-1), part);
    }
    return state;
  }

  /// What the update has made anew, and not written to the slices.
  void collect(const Part& part) {
    const auto tensors = tensors_of(*after_);
    whole_.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i]->defined()) continue;
      if (!whole_[i].defined()) whole_[i] = at::empty(parameter_.sizes(), tensors[i]->options());
      const at::Tensor place = slice(whole_[i].view(-1), part);
      if (!place.is_alias_of(*tensors[i])) place.copy_(*tensors[i]);
    }
  }

  torch::optim::Optimizer& optimizer_;
  ska::flat_hash_map<void*, State>& states_;
  const at::Tensor& parameter_;
  State before_, after_;
  std::vector<at::Tensor> whole_;  ///< of tensors_of() the state
};

}  // namespace

void update_in_parts(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter) {
  const auto parts = parts_of(parameter);
  const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
  const bool in_parts = parts.size() > 1 && parameter.grad().layout() == at::kStrided &&
                        parameter.grad().is_contiguous() &&
                        (state == optimizer.state().end() || is_laid_out_as(*state->second, parameter));
  if (!in_parts) return update_alone(optimizer, group, parameter);
  PartedUpdate(optimizer, parameter).run(group, parts);
}

void step_in_parts(torch::optim::Optimizer& optimizer) {
  check_updates_one_by_one(optimizer, "[step in parts]", ", or its own step()");
  for_each_parameter(optimizer, [&](const at::Tensor& parameter, size_t group) {
    if (parameter.grad().defined()) update_in_parts(optimizer, group, parameter);
  });
}

}  // namespace remat
