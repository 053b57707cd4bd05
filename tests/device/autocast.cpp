// Autocast on the simulated device: products in the lower type, bfloat16 at the start; what needs range in float.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "device/registration.h"

namespace remat::simulated {

void register_autocast() {
  at::autocast::set_autocast_dtype(c10::kPrivateUse1, at::kBFloat16);
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  torch::Library& m = *library;  // the name that PyTorch's macro takes for granted
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  static auto* const others =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace remat::simulated
