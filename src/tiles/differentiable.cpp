#include "tiles/differentiable.h"

#include <string>

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "device/device.h"
#include "pytorch/raise.h"

namespace remat::tiles {

bool is_ordinary(const at::Tensor& tensor) {
  return device::is_host(tensor.device()) && tensor.layout() == at::kStrided && !at::isTensorSubclassLike(tensor) &&
         !tensor._fw_grad(/*level=*/0).defined() && !tensor.is_neg() && !tensor.is_conj() &&
         !c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool is_autocast(const at::Tensor& tensor) { return at::autocast::is_autocast_enabled(tensor.device().type()); }

at::ScalarType autocast_type(const at::Tensor& tensor) {
  return at::autocast::get_autocast_dtype(tensor.device().type());
}

at::Tensor as_autocast(const at::Tensor& tensor, at::ScalarType type) {
  if (!tensor.defined() || !is_autocast(tensor)) return tensor;
  return at::autocast::cached_cast(type, tensor, tensor.device().type());
}

void check_backward(const char* function, const at::Tensor& tensor, at::TensorList gradients,
                    const Circumstances& forward) {
  const std::string where = std::string("[") + function + "] ";
  if (circumstances() != forward) {
    raise(Error(where +
                "threads, or settings of PyTorch's libraries, are others than in forward, whose numbers are computed "
                "again here; call backward() under those of forward"));
  }
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined() || is_ordinary(gradient)) continue;
    raise(Error(where +
                "backward was given gradients that are no plain tensors, as is_grads_batched and torch.func give them; "
                "call backward() for each of them, or the plain operators"));
  }
  if (at::GradMode::is_enabled()) {
    raise(Error(where +
                "backward was called with create_graph, and nothing differentiates the gradients of tiles; call "
                "the plain operators where gradients are differentiated"));
  }
  if (is_autocast(tensor) && tensor.scalar_type() != autocast_type(tensor)) {
    raise(Error(where + "backward runs within autocast and forward ran outside, where its gradients would have other "
                        "types; call backward() outside of autocast"));
  }
}

}  // namespace remat::tiles
