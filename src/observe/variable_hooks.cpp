#include "observe/variable_hooks.h"

#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/VariableHooksInterface.h>

#include "observe/tapes.h"

namespace remat {
namespace {

using at::TensorBase;
using at::impl::VariableHooksInterface;
using GradFn = decltype(std::declval<const VariableHooksInterface&>().grad_fn(std::declval<const TensorBase&>()));

class Hooks final : public VariableHooksInterface {
 public:
  explicit Hooks(const VariableHooksInterface& previous) : previous_(previous) {}

  void set_data(const TensorBase& tensor, const TensorBase& other) const override {
    Tapes::all().replace_data(tensor, other);
    previous_.set_data(tensor, other);
  }

  TensorBase tensor_data(const TensorBase& t) const override { return previous_.tensor_data(t); }
  TensorBase variable_data(const TensorBase& t) const override { return previous_.variable_data(t); }
  GradFn grad_fn(const TensorBase& t) const override { return previous_.grad_fn(t); }
  unsigned _register_hook(const TensorBase& t, std::function<TensorBase(const TensorBase&)> hook) const override {
    return previous_._register_hook(t, std::move(hook));
  }
  void remove_hook(const TensorBase& t, unsigned position) const override { previous_.remove_hook(t, position); }
  bool is_view(const TensorBase& t) const override { return previous_.is_view(t); }
  const TensorBase& base(const TensorBase& t) const override { return previous_.base(t); }
  const std::string& name(const TensorBase& t) const override { return previous_.name(t); }
  bool is_leaf(const TensorBase& t) const override { return previous_.is_leaf(t); }
  int64_t output_nr(const TensorBase& t) const override { return previous_.output_nr(t); }
  TensorBase data(const TensorBase& t) const override { return previous_.data(t); }
  int64_t _version(const TensorBase& t) const override { return previous_._version(t); }
  void retain_grad(const TensorBase& t) const override { previous_.retain_grad(t); }
  bool retains_grad(const TensorBase& t) const override { return previous_.retains_grad(t); }
  void _backward(const at::Tensor& t, at::TensorList inputs, const std::optional<at::Tensor>& gradient,
                 std::optional<bool> keep_graph, bool create_graph) const override {
    previous_._backward(t, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const TensorBase& t, bool requires_grad) const override {
    previous_.requires_grad_(t, requires_grad);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    previous_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const TensorBase& t) const override { return previous_.grad_dtype(t); }
  void set_grad_dtype(const TensorBase& t, const std::optional<c10::ScalarType>& type) const override {
    previous_.set_grad_dtype(t, type);
  }

 private:
  const VariableHooksInterface& previous_;
};

}  // namespace

void install_variable_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): never destroyed, tensors may outlive statics
    at::impl::SetVariableHooks(new Hooks(*at::impl::GetVariableHooks()));
  });
}

}  // namespace remat
