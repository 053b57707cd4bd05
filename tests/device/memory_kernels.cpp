// The operators that make, view, resize and copy tensors of a simulated device. What computes is in
// computing_kernels.cpp.
#include <array>
#include <atomic>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "device/caching_allocator.h"
#include "device/device_memory.h"
#include "device/kernel_view.h"
#include "device/pinned_memory.h"
#include "device/registration.h"
#include "device/simulated_device.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::ScalarType type_or_default(std::optional<at::ScalarType> type) {
  return type.value_or(c10::get_default_dtype_as_scalartype());
}

c10::Device device_or_current(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(current_device()));
}

std::atomic<bool> own_allocator = false;

/// Looked up each time: another may stand in front of the device's by now.
c10::Allocator* tensor_allocator() {
  return own_allocator.load() ? &caching_allocator() : c10::GetAllocator(c10::kPrivateUse1);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                 std::optional<c10::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, tensor_allocator(), kKeys, type_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<c10::Device> device,
                         std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, tensor_allocator(), kKeys, type_or_default(type));
}

void enlarge_storage(const at::Tensor& tensor) {
  const size_t bytes = tensor.numel() == 0 ? 0
                                           : at::detail::computeStorageNbytes(
                                                 tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
                                                 static_cast<size_t>(tensor.storage_offset()));
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  if (self.sizes() != sizes) self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  enlarge_storage(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  c10::TensorImpl* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(std::move(source));
  if (strides.data() == nullptr) {
    tensor->set_storage_offset(offset);
    tensor->set_sizes_contiguous(sizes);
  } else {
    tensor->set_sizes_and_strides(sizes, strides, offset);
  }
  enlarge_storage(self);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const at::Tensor none = empty({0}, self.scalar_type(), {}, self.device(), {}, {});
  return set_storage(self, none.storage(), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(c10::kPrivateUse1)->recordStream(self.storage().data_ptr(), stream);
}

at::Scalar local_scalar(const at::Tensor& self) {
  WorkQueue::of(current_stream(self.device().index())).synchronize();
  return kernel_view(self).item();
}

/// The host's side of a copy: pinned memory as it is when the stream comes to it, other memory as it is now.
at::Tensor host_source(const at::Tensor& source, bool later) { return later ? kernel_view(source) : copy_now(source); }

void use_pinned(const at::Tensor& host, const c10::Stream& stream) {
  const c10::DataPtr& data = host.storage().data_ptr();
  pinned_allocator().record_event(data.get(), data.get_context(), stream);
}

void copy_between_devices(const at::Tensor& source, const at::Tensor& target) {
  WorkQueue& from = WorkQueue::of(current_stream(source.device().index()));
  WorkQueue& to = WorkQueue::of(current_stream(target.device().index()));
  if (&from != &to) from.wait_for(to.mark());
  from.submit([in = kernel_view(source), out = kernel_view(target)] { out.copy_(in); });
  if (&from != &to) to.wait_for(from.mark());
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  rethrow_failure();
  TORCH_CHECK(at::is_expandable_to(source.sizes(), target.sizes()), "[simulated] a tensor of sizes ", source.sizes(),
              " cannot be copied to one of sizes ", target.sizes());
  if (target.numel() == 0) return target;
  if (source.is_privateuseone() && target.is_privateuseone()) {
    copy_between_devices(source, target);
    return target;
  }
  const bool to_device = target.is_privateuseone();
  const at::Tensor& host = to_device ? source : target;
  TORCH_CHECK(host.is_cpu(), "[simulated] copies from and to ", host.device(), " are not supported");
  const c10::Stream stream = current_stream((to_device ? target : source).device().index());
  const bool later = non_blocking && is_pinned(host.storage().data());
  WorkQueue& queue = WorkQueue::of(stream);
  queue.submit([in = to_device ? host_source(source, later) : kernel_view(source), out = kernel_view(target)] {
    out.copy_(in);
  });
  if (later) {
    use_pinned(host, stream);
  } else if (!to_device) {
    queue.synchronize();
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

}  // namespace

void register_memory_kernels() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("empty.memory_format", &empty);
  library->impl("empty_strided", &empty_strided);
  library->impl("resize_", &resize);
  library->impl("set_.source_Storage_storage_offset", &set_storage);
  library->impl("set_.source_Storage", &set_whole_storage);
  library->impl("set_.source_Tensor", &set_tensor);
  library->impl("set_", &set_empty);
  library->impl("is_set_to", &at::native::is_set_to);
  library->impl("as_strided", &at::native::as_strided_tensorimpl);
  library->impl("view", &at::native::view);
  library->impl("_reshape_alias", &at::native::_reshape_alias);
  library->impl("unfold", &at::native::unfold);
  library->impl("view_as_real", &at::native::view_as_real);
  library->impl("view_as_complex", &at::native::view_as_complex);
  library->impl("record_stream", &record_stream);
  library->impl("_local_scalar_dense", &local_scalar);
  library->impl("_copy_from", &copy_from);
  library->impl("_copy_from_and_resize", &copy_from_and_resize);
  // Kernels read what is marked as conjugate or negative; PyTorch's fallback for them clones it, by a copy such as
  // this.
  for (const auto mark : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    auto* const marked = new torch::Library(torch::Library::IMPL, "aten", mark, __FILE__, __LINE__);
    marked->impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
}

void set_own_allocator(bool own) { own_allocator.store(own); }

}  // namespace remat::simulated
