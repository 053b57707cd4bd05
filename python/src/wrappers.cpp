// Subclasses of tensors that wrap others and say of what they are made: __tensor_flatten__ and __tensor_unflatten__,
// the protocol that torch.compile asks for too.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <remat/extension.h>
#include <torch/csrc/autograd/python_variable.h>

#include "module.h"

namespace remat::python {
namespace {

/// Objects of Python that any thread may release.
struct Recipe {
  py::object unflatten;  ///< of the class
  py::dict others;       ///< attributes that are no tensors, as a device mesh
  std::vector<std::string> names;
  py::object context, sizes, strides;
};

at::Tensor assemble(const Recipe& recipe, const std::vector<at::Tensor>& parts) {
  const py::gil_scoped_acquire lock;
  const at::NoGradGuard no_history;
  py::dict inner = recipe.others.attr("copy")();
  for (size_t i = 0; i < parts.size(); ++i) inner[recipe.names[i].c_str()] = py::cast(parts[i]);
  return recipe.unflatten(inner, recipe.context, recipe.sizes, recipe.strides).cast<at::Tensor>();
}

std::optional<extension::TensorParts> take_apart(const at::Tensor& tensor) {
  // A nested tensor's sizes have an identity, which another tensor made of its parts would not share.
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return std::nullopt;
  const py::gil_scoped_acquire lock;
  const at::NoGradGuard no_history;
  // Without history: what is assembled shall have none.
  const py::object object = py::cast(tensor.detach());
  if (!py::hasattr(object, "__tensor_flatten__")) return std::nullopt;
  const std::shared_ptr<Recipe> recipe(new Recipe, delete_on_any_thread<Recipe>);
  const auto flattened = object.attr("__tensor_flatten__")().cast<py::tuple>();
  recipe->context = flattened[1];
  extension::TensorParts taken;
  for (const py::handle name : flattened[0]) {
    const py::object part = object.attr(name);
    if (THPVariable_Check(part.ptr())) {
      recipe->names.push_back(name.cast<std::string>());
      taken.parts.push_back(part.cast<at::Tensor>());
    } else {
      recipe->others[name] = part;
    }
  }
  recipe->unflatten = py::type::of(object).attr("__tensor_unflatten__");
  recipe->sizes = object.attr("size")();
  recipe->strides = object.attr("stride")();
  taken.assemble = [recipe](const std::vector<at::Tensor>& parts) { return assemble(*recipe, parts); };
  return taken;
}

}  // namespace

void bind_wrappers(py::module_& /*m*/) { extension::set_tensor_taker(&take_apart); }

}  // namespace remat::python
