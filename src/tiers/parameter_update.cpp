#include "tiers/parameter_update.h"

#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <remat/error.h>
#include <remat/support/number_text.h>

#include "device/device.h"

namespace remat {
namespace {

/// While it lives, `parameter` is all that the optimizer has.
class Alone {
 public:
  Alone(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter)
      : groups_(optimizer.param_groups()) {
    for (auto& each : groups_) all_.push_back(std::exchange(each.params(), {}));
    groups_[group].params().push_back(parameter);
  }
  ~Alone() {
    for (size_t g = 0; g < groups_.size(); ++g) groups_[g].params() = std::move(all_[g]);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  std::vector<torch::optim::OptimizerParamGroup>& groups_;
  std::vector<std::vector<at::Tensor>> all_;
};

}  // namespace

bool updates_one_by_one(const torch::optim::Optimizer& optimizer) {
  const auto& type = typeid(optimizer);
  return type == typeid(torch::optim::SGD) || type == typeid(torch::optim::Adam) ||
         type == typeid(torch::optim::AdamW) || type == typeid(torch::optim::RMSprop) ||
         type == typeid(torch::optim::Adagrad);
}

void check_updates_one_by_one(const torch::optim::Optimizer& optimizer, const std::string& where,
                              const std::string& otherwise) {
  if (updates_one_by_one(optimizer)) return;
  throw Error(where +
              " this optimizer may look at several parameters at once; use SGD, Adam, AdamW, RMSprop or Adagrad" +
              otherwise);
}

void check_on_host(const at::Tensor& parameter, const std::string& where, const std::string& what) {
  if (device::is_host(parameter.device())) return;
  throw Error(where + " a parameter of shape " + support::list_text(parameter.sizes()) + " is on " +
              parameter.device().str() + "; " + what + " for parameters on the CPU");
}

void update_alone(torch::optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter) {
  const Alone alone(optimizer, group, parameter);
  optimizer.step();
}

}  // namespace remat
