#include "support/oracle.h"

#include <torch/torch.h>

namespace remat::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }
void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

/// A node keeps the block itself, not only tensors, so it is a torch::CustomClassHolder.
struct BlockHolder : torch::CustomClassHolder {
  explicit BlockHolder(Block function) : block(std::move(function)) {}
  Block block;
};

struct NaiveCheckpoint : torch::autograd::Function<NaiveCheckpoint> {
  static variable_list forward(AutogradContext* ctx, const Block& block, at::TensorList inputs) {
    const variable_list list = inputs.vec();
    ctx->saved_data["block"] = c10::IValue::make_capsule(c10::make_intrusive<BlockHolder>(block));
    ctx->saved_data["generator"] = generator_state();
    ctx->save_for_backward(list);
    const torch::NoGradGuard no_grad;
    return block(list);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list inputs;
    for (const auto& saved : ctx->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    }
    const auto capsule = ctx->saved_data["block"].toCapsule();
    const auto& block = static_cast<const BlockHolder&>(*capsule).block;
    const at::Tensor present = generator_state();
    variable_list outputs;
    {
      const torch::AutoGradMode grad_mode(true);
      set_generator_state(ctx->saved_data["generator"].toTensor());
      outputs = block(inputs);
      set_generator_state(present);
    }
    variable_list roots, root_grads;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !grads[i].defined()) continue;
      roots.push_back(outputs[i]);
      root_grads.push_back(grads[i]);
    }
    torch::autograd::backward(roots, root_grads);
    variable_list result = {at::Tensor()};  // for the block
    for (const auto& input : inputs) result.push_back(input.grad());
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> naive_checkpoint(const Block& block, const std::vector<at::Tensor>& inputs) {
  return NaiveCheckpoint::apply(block, at::TensorList(inputs));
}

}  // namespace remat::test
