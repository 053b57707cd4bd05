// src/pytorch/tensor_view.h -- a tensor without its contents: how it looks at a storage.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/SizesAndStrides.h>

namespace remat {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

/// A strided tensor's storage. It may be null.
inline c10::StorageImpl* storage_of(const c10::TensorImpl& impl) {
  return impl.unsafe_storage().unsafeGetStorageImpl();
}
inline c10::StorageImpl* storage_of(const at::TensorBase& tensor) { return storage_of(*tensor.unsafeGetTensorImpl()); }

/// Part of a storage.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

/// From the first byte to the last that a tensor reaches.
ByteRange reach_of(const c10::TensorImpl& impl);

/// Does the tensor reach every byte of its storage?
bool covers_storage(const at::TensorBase& tensor);

/// Sizes, strides, offset and type of a plain strided tensor. With the storage it gives the tensor back.
struct TensorView {
  c10::impl::SizesAndStrides shape;
  int64_t offset = 0;
  c10::DispatchKeySet keys;
  caffe2::TypeMeta type;

  TensorView() = default;
  explicit TensorView(const c10::TensorImpl& impl);

  /// A tensor without autograd history that looks at `storage` like the original did.
  at::Tensor over(StoragePtr storage) const;
  /// A tensor of its shape over `storage`, which is not to be read: not conjugated or negated when it is, lazily.
  at::Tensor shape_over(StoragePtr storage) const;
};

/// True for tensors that are fully described by a TensorView and a storage with contents: strided, of a plain device,
/// not a subclass, not sparse, quantized, nested or wrapped, no inference tensor, no number in disguise.
bool is_plain(const at::TensorBase& tensor);
/// On this thread tensors of the meta device are plain, and no others; or it is the other way round.
void choose_plain_tensors(bool meta);

/// The tensor that `tensor` is a view of, or itself: products read a transposed view of a weight.
inline const at::TensorBase& base_of(const at::TensorBase& tensor) {
  return tensor.is_view() ? tensor._base() : tensor;
}

/// Has it a storage, and that nothing in it? (The sizes of FakeTensors' storages may be symbols.)
bool is_empty(const at::TensorBase& tensor);
/// Like is_plain(), but without contents: what operators with an `out` argument are given to fill.
bool is_blank(const at::TensorBase& tensor);

/// The same contents and version counter without autograd history; holding it holds no graph.
at::Tensor history_free(const at::Tensor& tensor);

}  // namespace remat
