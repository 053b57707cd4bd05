#include "observe/softmax_backward.h"

#include <mutex>
#include <sstream>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <torch/library.h>

#include "device/dispatch_keys.h"
#include "memory/silent_warnings.h"
#include "observe/recorder.h"

namespace remat {
namespace {

using Kernel = at::Tensor (*)(const at::Tensor&, const at::Tensor&, int64_t, at::ScalarType);
using KernelOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, at::ScalarType);

template <Kernel kernel, KernelOut kernel_out>
at::Tensor in_place(const at::Tensor& gradient, const at::Tensor& output, int64_t dim, at::ScalarType input_type) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !recorder->reuses(gradient)) return kernel(gradient, output, dim, input_type);
  at::Tensor result = gradient;
  kernel_out(result, gradient, output, dim, input_type);
  return result;
}

/// The dispatcher tells in text alone where a kernel comes from.
bool has_pytorchs_kernel(const char* name) {
  const auto handle = c10::Dispatcher::singleton().findOp({name, ""});
  if (!handle) return false;
  std::istringstream lines(handle->dumpState());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("CPU: ")) return line.find("RegisterCPU") != std::string::npos;
  }
  return false;
}

template <Kernel kernel, KernelOut kernel_out>
void install(torch::Library& library, const char* name) {
  if (has_pytorchs_kernel(name)) library.impl(name, in_place<kernel, kernel_out>);
}

}  // namespace

void install_softmax_backward() {
  static std::once_flag once;
  std::call_once(once, [] {
    const SilentWarnings silent;  // PyTorch warns of kernels that are replaced
    // Never destroyed: operators may run until the process ends.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "aten", device::kHostKeys.kernels, __FILE__, __LINE__);
    install<at::cpu::_log_softmax_backward_data, at::cpu::_log_softmax_backward_data_out>(
        *library, "aten::_log_softmax_backward_data");
    install<at::cpu::_softmax_backward_data, at::cpu::_softmax_backward_data_out>(*library,
                                                                                  "aten::_softmax_backward_data");
  });
}

}  // namespace remat
