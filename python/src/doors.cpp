#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include "memory/ledger.h"
#include "module.h"
#include "record/recorder.h"
#include "record/tapes.h"

namespace remat::python {

namespace {

/// The leaf that `tensor` stands for, where autograd made `tensor` of a leaf that it saved: both have one accumulator.
at::Tensor leaf_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad() || !tensor.is_leaf()) return tensor;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor);
  const auto* const node = dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  if (node == nullptr || !node->variable.defined() || node->variable.data_ptr() != tensor.data_ptr()) return tensor;
  return node->variable;
}

}  // namespace

void bind_doors(py::module_& m) {
  const auto without_lock = py::call_guard<py::gil_scoped_release>();
  m.def(
      "hand_out", [](const at::Tensor& tensor) { Tapes::all().hand_out(tensor); }, without_lock);
  m.def("is_anything_recorded", [] { return Tapes::all().exist(); });
  m.def("leaf_of", &leaf_of, without_lock);
  m.def(
      "count_memory",
      [](const at::Tensor& tensor) {
        if (is_plain(tensor) && tensor.is_cpu()) memory::Ledger::of(c10::kCPU).adopt(*storage_of(tensor));
      },
      without_lock);
  m.def("count_storage", [](const py::object& storage) {
    const c10::Storage counted = torch::createStorage(storage.ptr());
    if (counted.device().is_cpu()) memory::Ledger::of(c10::kCPU).adopt(*counted.unsafeGetStorageImpl());
  });
  m.def(
      "announce_write",
      [](const at::Tensor& tensor) {
        Recorder* const recorder = Recorder::current();
        if (recorder != nullptr) recorder->announce_write(tensor);
        // Of what other threads have recorded, nobody knows how far they are.
        Tapes::all().hand_out(tensor, recorder != nullptr ? recorder->tape().get() : nullptr);
      },
      without_lock);
}

}  // namespace remat::python
