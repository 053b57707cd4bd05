#include "pytorch/tensor_view.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/core/TensorBody.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "device/dispatch_keys.h"

namespace remat {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

/// Everything that a plain tensor's key set may hold.
constexpr DispatchKeySet kOfAnyDevice({DispatchKey::ADInplaceOrView, DispatchKey::Conjugate, DispatchKey::Negative});
constexpr DispatchKeySet kPlainKeys = device::kTensorKeys | kOfAnyDevice;
constexpr DispatchKeySet kPlainMetaKeys = device::kMetaTensorKeys | kOfAnyDevice;

thread_local bool t_meta = false;

bool has_plain_storage(const at::TensorBase& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const DispatchKeySet& plain = t_meta ? kPlainMetaKeys : kPlainKeys;
  return (impl->key_set().raw_repr() & ~plain.raw_repr()) == 0 && !impl->is_inference() && !impl->is_wrapped_number() &&
         impl->has_storage() && storage_of(*impl) != nullptr && !impl->has_symbolic_sizes_strides() &&
         !storage_of(*impl)->sym_nbytes().is_heap_allocated();
}

}  // namespace

ByteRange reach_of(const c10::TensorImpl& impl) {
  if (impl.numel() == 0) return {};
  int64_t last = impl.storage_offset();
  for (int64_t d = 0; d < impl.dim(); ++d) last += (impl.size(d) - 1) * impl.stride(d);
  const auto item = static_cast<int64_t>(impl.itemsize());
  return {impl.storage_offset() * item, (last + 1) * item};
}

bool covers_storage(const at::TensorBase& tensor) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  return impl.is_non_overlapping_and_dense() &&
         static_cast<size_t>(impl.numel()) * impl.itemsize() == impl.unsafe_storage().nbytes();
}

TensorView::TensorView(const c10::TensorImpl& impl)
    : offset(impl.storage_offset()), keys(impl.key_set()), type(impl.dtype()) {
  shape.set_sizes(impl.sizes());
  shape.set_strides(impl.strides());
}

at::Tensor TensorView::over(StoragePtr storage) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes_arrayref(), shape.strides_arrayref(), offset);
  return tensor;
}

at::Tensor TensorView::shape_over(StoragePtr storage) const {
  TensorView plain = *this;
  plain.keys = keys - DispatchKeySet({DispatchKey::Conjugate, DispatchKey::Negative});
  return plain.over(std::move(storage));
}

void choose_plain_tensors(bool meta) { t_meta = meta; }

bool is_plain(const at::TensorBase& tensor) {
  return has_plain_storage(tensor) && tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() > 0;
}

bool is_empty(const at::TensorBase& tensor) {
  if (!tensor.has_storage()) return false;
  const c10::StorageImpl& storage = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return !storage.sym_nbytes().is_heap_allocated() && storage.nbytes() == 0;
}

bool is_blank(const at::TensorBase& tensor) {
  return has_plain_storage(tensor) && tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0;
}

at::Tensor history_free(const at::Tensor& tensor) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  if (impl->is_inference()) return tensor;
  // A dispatch mode of the user's sees detaching as an operator; a subclass has to.
  const c10::impl::ExcludeDispatchKeyGuard unseen(
      impl->is_python_dispatch() ? DispatchKeySet()
                                 : DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot}));
  const auto detached = impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true);
  // Tensors in a compressed sparse layout keep the tensors that they were made of, history included; COO ones do not.
  if (auto* const sparse = dynamic_cast<at::SparseCsrTensorImpl*>(detached.get())) {
    sparse->set_member_tensors(history_free(sparse->compressed_indices()), history_free(sparse->plain_indices()),
                               history_free(sparse->values()), sparse->sym_sizes());
  }
  detached->set_allow_tensor_metadata_change(false);
  return at::Tensor(detached);
}

}  // namespace remat
