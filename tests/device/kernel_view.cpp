#include "device/kernel_view.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/Storage.h>

#include "device/device_memory.h"

namespace remat::simulated {
namespace {

size_t bytes_to_last_element(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
                                          static_cast<size_t>(tensor.storage_offset()));
}

void copy_marks(const at::Tensor& from, at::Tensor& to) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

}  // namespace

at::Tensor kernel_view(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 0 || bytes_to_last_element(tensor) <= tensor.storage().nbytes(),
              "[simulated] a kernel would reach beyond its tensor's storage: it needs ", bytes_to_last_element(tensor),
              " bytes of ", tensor.storage().nbytes());
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(),
      c10::DataPtr(DeviceMemory::for_kernels(tensor.storage().data()), c10::kCPU), nullptr, false));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  copy_marks(tensor, view);
  return view;
}

at::Tensor zeros_in_shape_of(const at::Tensor& tensor) {
  const size_t elements =
      tensor.numel() == 0 ? 0 : at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), 1);
  at::Tensor zeros = at::zeros({static_cast<int64_t>(elements)}, at::TensorOptions(tensor.dtype()));
  zeros.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  copy_marks(tensor, zeros);
  return zeros;
}

at::Tensor copy_now(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::DisableRecordFunctionGuard unobserved;
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

}  // namespace remat::simulated
