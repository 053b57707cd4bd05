#include <remat/linear_cross_entropy.h>
#include <remat/tiled_mlp.h>
#include <remat/tiles.h>

#include "module.h"

namespace remat::python {

void bind_tiles(py::module_& m) {
  m.def(
      "linear_cross_entropy",
      [](const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& target,
         const std::optional<at::Tensor>& linear_bias, const std::optional<at::Tensor>& weight, int64_t reduction,
         int64_t ignore_index, double label_smoothing, bool whole_trial) {
        LinearCrossEntropyOptions options;
        options.linear_bias = linear_bias.value_or(at::Tensor());
        options.weight = weight.value_or(at::Tensor());
        options.reduction = static_cast<at::Reduction::Reduction>(reduction);
        options.ignore_index = ignore_index;
        options.label_smoothing = label_smoothing;
        options.whole_trial = whole_trial;
        return linear_cross_entropy(input, linear_weight, target, options);
      },
      py::call_guard<py::gil_scoped_release>());
  m.def(
      "tiled_mlp",
      [](const at::Tensor& input, const at::Tensor& up, const at::Tensor& down, int activation,
         const std::optional<at::Tensor>& up_bias, const std::optional<at::Tensor>& gate,
         const std::optional<at::Tensor>& gate_bias, const std::optional<at::Tensor>& down_bias, double dropout,
         bool whole_trial) {
        TiledMlpOptions options;
        options.activation = static_cast<Activation>(activation);
        options.up_bias = up_bias.value_or(at::Tensor());
        options.gate = gate.value_or(at::Tensor());
        options.gate_bias = gate_bias.value_or(at::Tensor());
        options.down_bias = down_bias.value_or(at::Tensor());
        options.dropout = dropout;
        options.whole_trial = whole_trial;
        return tiled_mlp(input, up, down, options);
      },
      py::call_guard<py::gil_scoped_release>());
  m.def("last_tile_choice", [] {
    const TileChoice choice = last_tile_choice();
    return py::make_tuple(choice.rows, choice.columns, choice.reason);
  });
}

}  // namespace remat::python
