// The simulated device for Python: loading this library makes it known, with its switches as operators.
// tests/python/simulated_device.py is what to call.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "device/caching_allocator.h"
#include "device/device_guard.h"
#include "device/device_memory.h"
#include "device/generator.h"
#include "device/simulated_device.h"
#include "device/stream.h"

namespace {

namespace simulated = remat::simulated;

const bool registered = (simulated::register_devices(), true);

at::Generator generator_of(int64_t device) {
  return simulated::default_generator(static_cast<c10::DeviceIndex>(device));
}

TORCH_LIBRARY(remat_simulated, library) {
  library.def("rng_state", [](int64_t device) { return generator_of(device).get_state(); });
  library.def("set_rng_state", [](int64_t device, const at::Tensor& state) { generator_of(device).set_state(state); });
  library.def("manual_seed",
              [](int64_t device, int64_t seed) { generator_of(device).set_current_seed(static_cast<uint64_t>(seed)); });
  library.def("set_draw_on_cpu", &simulated::set_draw_on_cpu);
  library.def("set_synchronous", &simulated::set_synchronous);
  library.def("set_delay", &simulated::set_delay);
  library.def("set_records_streams", &simulated::set_records_streams);
  library.def("set_own_allocator", &simulated::set_own_allocator);
  library.def("set_tells_memory", &simulated::set_tells_memory);
  library.def("set_capacity", [](int64_t device, int64_t bytes) {
    simulated::DeviceMemory::of(static_cast<int>(device)).set_capacity(static_cast<size_t>(bytes));
  });
}

}  // namespace
