#include "kernels/cpu_view.h"

#include <utility>

#include <ATen/EmptyTensor.h>
#include <c10/core/Storage.h>

namespace remat::simulated_cuda {
namespace {

at::Tensor tensor_over(void* data, size_t bytes, caffe2::TypeMeta type) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             c10::DataPtr(data, c10::kCPU), nullptr, false));
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
}

}  // namespace

bool is_wrapped_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

void copy_wrapped_number(const at::Tensor& from, const at::Tensor& to) {
  if (is_wrapped_number(from)) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

at::Tensor cpu_view(const at::Tensor& tensor) {
  at::Tensor view = tensor_over(tensor.storage().mutable_data(), tensor.storage().nbytes(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  copy_wrapped_number(tensor, view);
  return view;
}

at::Tensor cpu_view(void* data, at::IntArrayRef sizes, at::IntArrayRef strides, caffe2::TypeMeta type) {
  at::Tensor view = tensor_over(data, at::detail::computeStorageNbytes(sizes, strides, type.itemsize()), type);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return view;
}

}  // namespace remat::simulated_cuda
