#include <optional>
#include <utility>

#include <remat/extension.h>

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include "module.h"
#include "watched_functions.h"

namespace remat::python {

namespace {

/// Where a tensor's elements begin: empty for a tensor without a storage (functorch's wrappers, sparse ones). Asks for
/// no access to them, which fake tensors refuse and which copies what is copied on write.
std::optional<std::pair<const void*, int64_t>> place_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.has_storage() || impl.unsafe_storage().unsafeGetStorageImpl() == nullptr) return std::nullopt;
  if (impl.has_symbolic_sizes_strides()) return std::nullopt;
  return std::pair(impl.unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(),
                   tensor.storage_offset());
}

/// The leaf that `tensor` stands for, where autograd made `tensor` of a leaf that it saved: both have one accumulator.
at::Tensor leaf_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad() || !tensor.is_leaf()) return tensor;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor);
  const auto* const node = dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  if (node == nullptr || !node->variable.defined()) return tensor;
  const auto place = place_of(tensor);  // another one: the leaf's data was replaced
  return place && place == place_of(node->variable) ? node->variable : tensor;
}

}  // namespace

void bind_doors(py::module_& m) {
  const auto without_lock = py::call_guard<py::gil_scoped_release>();
  m.def("hand_out", &extension::hand_out, without_lock);
  m.def("announce_write", &extension::announce_write, without_lock);
  m.def("let_go", &extension::let_go, without_lock);
  m.def("watch_function", &watch_function);
  m.def("is_anything_recorded", &extension::is_anything_recorded);
  m.def("leaf_of", &leaf_of, without_lock);
  m.def(
      "count_memory", [](const at::Tensor& tensor) { extension::count_memory(tensor); }, without_lock);
  m.def("count_storage", [](const py::object& storage) {
    extension::count_memory(*torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
  });
}

}  // namespace remat::python
