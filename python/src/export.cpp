#include <remat/export.h>

#include "module.h"

namespace remat::python {

void bind_export(py::module_& m) {
  m.def(
      "export_step",
      [](const std::string& step, int64_t ram_bytes, int64_t stack_bytes, const std::string& optimizer, double momentum,
         double weight_decay, const std::string& planner, const std::string& name) {
        ExportOptions options;
        options.ram_bytes = ram_bytes;
        options.stack_bytes = stack_bytes;
        options.optimizer = optimizer;
        options.momentum = momentum;
        options.weight_decay = weight_decay;
        options.planner = planner;
        options.name = name;
        ExportedStep exported;
        {
          py::gil_scoped_release unlocked;
          exported = export_step(step, options);
        }
        py::dict result;
        result["files"] = exported.files;
        result["summary"] = exported.summary();
        result["ram_bytes"] = exported.ram_bytes;
        result["parameter_bytes"] = exported.parameter_bytes;
        result["optimizer_bytes"] = exported.optimizer_bytes;
        result["state_bytes"] = exported.state_bytes;
        result["batch_bytes"] = exported.batch_bytes;
        result["fixed_bytes"] = exported.fixed_bytes;
        result["arena_bytes"] = exported.arena_bytes;
        result["constant_bytes"] = exported.constant_bytes;
        result["predicted_bytes"] = exported.predicted_bytes;
        result["kept_bytes"] = exported.kept_bytes;
        result["instructions"] = exported.instructions;
        result["replay_instructions"] = exported.replay_instructions;
        result["calls"] = exported.calls;
        result["replays"] = exported.replays;
        return result;
      },
      py::arg("step"), py::kw_only(), py::arg("ram_bytes"), py::arg("stack_bytes") = 1024, py::arg("optimizer") = "sgd",
      py::arg("momentum") = 0.9, py::arg("weight_decay") = 0.0, py::arg("planner") = "auto", py::arg("name") = "model");
}

}  // namespace remat::python
