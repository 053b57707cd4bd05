#include <remat/device_estimate.h>

#include <string>
#include <utility>
#include <vector>

#include <remat/allocation_notes.h>

#include "module.h"

namespace remat::python {
namespace {

/// A graph that was read, and what its step takes.
struct DeviceStep {
  Graph graph;
  StepAllocations allocations;
};

void bind_allocator(py::module_& m) {
  py::class_<AllocatorState>(m, "AllocatorState")
      .def_readonly("refused", &AllocatorState::refused)
      .def_readonly("allocated_bytes", &AllocatorState::allocated_bytes)
      .def_readonly("reserved_bytes", &AllocatorState::reserved_bytes)
      .def_property_readonly("segments", [](const AllocatorState& state) {
        std::vector<std::vector<std::pair<int64_t, bool>>> segments;
        for (const AllocatorSegment& segment : state.segments) {
          auto& blocks = segments.emplace_back();
          for (const AllocatorBlock& block : segment) blocks.emplace_back(block.bytes, block.in_use);
        }
        return segments;
      });
  m.def("simulate_allocator",
        [](const std::vector<std::pair<int64_t, int64_t>>& requests, int64_t bytes, const std::string& settings) {
          std::vector<AllocatorRequest> all;
          for (const auto& [size, frees] : requests) all.push_back({.bytes = size, .frees = frees});
          return simulate_allocator(all, {.bytes = bytes, .settings = settings});
        });
}

}  // namespace

void bind_device_estimate(py::module_& m) {
  bind_allocator(m);
  py::class_<StepAllocations>(m, "StepAllocations");
  py::class_<AllocationNotes>(m, "AllocationNotes").def(py::init<>()).def("take", &AllocationNotes::take);
  py::class_<DevicePeaks>(m, "DevicePeaks")
      .def_readonly("allocated_bytes", &DevicePeaks::allocated_bytes)
      .def_readonly("reserved_bytes", &DevicePeaks::reserved_bytes)
      .def_readonly("step_bytes", &DevicePeaks::step_bytes)
      .def_readonly("fits", &DevicePeaks::fits)
      .def_readonly("beyond_bytes", &DevicePeaks::beyond_bytes)
      .def_readonly("releases", &DevicePeaks::releases)
      .def_readonly("reserved_in_steps", &DevicePeaks::reserved_in_steps);
  py::class_<DeviceStep>(m, "DeviceStep")
      .def(py::init([](const std::string& graph, StepAllocations allocations) {
        return DeviceStep{graph_from_json(graph), std::move(allocations)};
      }))
      .def(
          "predict",
          [](const DeviceStep& step, const std::vector<int64_t>& model, const std::vector<int64_t>& state,
             const std::vector<int64_t>& update, int64_t bytes, const std::string& settings, const Plan* plan) {
            return predict_on_device(step.graph, step.allocations, {.model = model, .state = state, .update = update},
                                     {.bytes = bytes, .settings = settings}, plan);
          },
          py::call_guard<py::gil_scoped_release>());
}

}  // namespace remat::python
