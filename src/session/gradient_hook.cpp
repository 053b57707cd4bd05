#include "session/gradient_hook.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <remat/error.h>
#include <remat/support/number_text.h>

namespace remat {
namespace {

struct GradientHook final : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(GradientHooks::IsComplete is_complete) : is_complete_(std::move(is_complete)) {}
  void operator()(const at::Tensor& parameter) override { is_complete_(parameter); }

 private:
  GradientHooks::IsComplete is_complete_;
};

}  // namespace

void GradientHooks::add(const at::Tensor& parameter, const char* where, IsComplete is_complete) {
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
    const bool is_ours = std::ranges::any_of(watched_, [&](const at::Tensor& own) { return own.is_same(parameter); });
    throw Error(std::string(where) + " a parameter of shape " + support::list_text(parameter.sizes()) +
                (is_ours ? " is in the optimizer's groups twice; give each once"
                         : " has a hook that runs after its gradient is complete; one at a time can have such hooks"));
  }
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<GradientHook>(std::move(is_complete)));
  watched_.push_back(parameter);
}

void GradientHooks::remove() {
  for (const auto& parameter : watched_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  watched_.clear();
}

}  // namespace remat
