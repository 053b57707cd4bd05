#include <remat/head_trial.h>
#include <remat/linear_cross_entropy.h>
#include <remat/tiled_head.h>
#include <remat/tiled_mlp.h>
#include <remat/tiles.h>

#include "module.h"

namespace remat::python {
namespace {

py::tuple as_tuple(const TileChoice& choice) { return py::make_tuple(choice.rows, choice.columns, choice.reason); }

}  // namespace

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
  py::class_<HeadTrial>(m, "HeadTrial")
      .def(py::init<>())
      .def("wants_tiles", &HeadTrial::wants_tiles)
      .def_property_readonly("is_over", &HeadTrial::is_over)
      .def_property_readonly("seconds_in_tiles", &HeadTrial::seconds_in_tiles)
      .def_property_readonly("seconds_whole", &HeadTrial::seconds_whole)
      .def("note", [](HeadTrial& trial, bool tiles, int64_t logits_bytes, int64_t budget_bytes, double seconds,
                      const py::function& least_budget) {
        trial.note({tiles, logits_bytes, budget_bytes, seconds}, [&] { return least_budget().cast<int64_t>(); });
      });
  m.def("last_tile_choice", [] { return as_tuple(last_tile_choice()); });
  m.def("product_circumstances", &extension::product_circumstances);
  py::class_<extension::KnownMode>(m, "KnownMode").def(py::init()).def("end", &extension::KnownMode::end);
  py::class_<extension::TiledHead>(m, "TiledHead")
      .def_static(
          "make",
          [](const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
             const at::Tensor& classes, at::ScalarType loss_type, const std::array<bool, 3>& needs) {
            return extension::TiledHead::make({input, weight, bias.value_or(at::Tensor())}, classes, loss_type,
                                              {needs[0], needs[1], needs[2]});
          },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("log_probabilities", &extension::TiledHead::log_probabilities)
      .def_property_readonly("choice", [](const extension::TiledHead& head) { return as_tuple(head.choice()); })
      .def(
          "gradients",
          [](const extension::TiledHead& head, const at::Tensor& of_log_probabilities) {
            extension::HeadTensors found = head.gradients(of_log_probabilities);
            const auto optional = [](at::Tensor& tensor) {
              return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
            };
            return std::make_tuple(optional(found.input), optional(found.weight), optional(found.bias));
          },
          py::call_guard<py::gil_scoped_release>());
}

}  // namespace remat::python
