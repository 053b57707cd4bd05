#include "record/operator_kernels.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>

/// Reads an operator's dispatch table, which has no public way in: typed handles are the dispatcher's friends.
template <>
class c10::TypedOperatorHandle<remat::OperatorKernels> {
 public:
  /// REQUIRES that there is a kernel for `key`.
  static const c10::KernelFunction& kernel(const c10::OperatorHandle& handle, c10::DispatchKey key) {
    return handle.operatorDef_->op.lookup(c10::DispatchKeySet(key));
  }
};

namespace remat {
namespace {

using DispatchTable = c10::TypedOperatorHandle<OperatorKernels>;

/// By which a call on the CPU or on CUDA may come. Kernels at those in the middle stand before those of a device:
/// for views and writes, for factories, for tensors with a flag.
constexpr std::array<c10::DispatchKey, OperatorKernels::kKeys> kCalled = {
    c10::DispatchKey::AutogradCPU,   c10::DispatchKey::AutogradCUDA, c10::DispatchKey::ADInplaceOrView,
    c10::DispatchKey::BackendSelect, c10::DispatchKey::Negative,     c10::DispatchKey::Conjugate,
    c10::DispatchKey::ZeroTensor,    c10::DispatchKey::CPU,          c10::DispatchKey::CUDA};

/// How the names of keys begin at which results are computed: not those of tracing, modes and the meta device.
constexpr std::array<std::string_view, 12> kComputing = {"Autograd",  "ADInplaceOrView", "BackendSelect", "Negative",
                                                         "Conjugate", "ZeroTensor",      "CPU",           "CUDA",
                                                         "Composite", "Sparse",          "Quantized",     "Mkldnn"};

/// Between a file's name and the line in it.
constexpr std::array<std::string_view, 5> kCppFiles = {".cpp:", ".cc:", ".cxx:", ".cu:", ".mm:"};

/// A line of OperatorHandle::dumpState(), as "CPU: registered at a/file.cpp:12 :: (Tensor _0) -> Tensor _0 [ boxed ]".
struct Registration {
  explicit Registration(std::string_view line) : line_(line) {}

  /// Is it of a kernel that is called, and computes what the caller is given?
  bool computes() const {
    const size_t end = line_.find(": registered at ");
    if (end == std::string_view::npos || line_.find(" [ boxed") == std::string_view::npos) return false;
    const std::string_view key = line_.substr(0, end);
    if (key.find("(inactive)") != std::string_view::npos) return false;
    return std::ranges::any_of(kComputing, [&](std::string_view begin) { return key.starts_with(begin); });
  }
  /// Replays are made below these.
  bool of_autograd() const { return line_.starts_with("Autograd") || line_.starts_with("ADInplaceOrView"); }
  bool of_cuda() const { return line_.starts_with("CUDA:"); }
  bool of_pytorch() const {
    return line_.find("aten/src/ATen/") != std::string_view::npos ||
           line_.find("torch/csrc/") != std::string_view::npos;
  }
  /// May it be a function of Python's? Those are boxed, and registered in files of Python or none.
  bool may_be_python() const { return line_.ends_with(":: (none) [ boxed ]") && !is_in_cpp_file(); }

 private:
  bool is_in_cpp_file() const {
    return std::ranges::any_of(kCppFiles, [&](std::string_view suffix) { return line_.find(suffix) != line_.npos; });
  }

  std::string_view line_;
};

}  // namespace

OperatorKernels::OperatorKernels(const c10::OperatorHandle& handle) {
  static_assert(sizeof(c10::KernelFunction) >= kKernelBytes);
  // There always is one for AutogradCPU: a fallback, at least. From its place in the table follow the others'.
  const auto index = [](c10::DispatchKey key) {
    return c10::DispatchKeySet(key).getDispatchTableIndexForDispatchKeySet();
  };
  const c10::KernelFunction* const first = &DispatchTable::kernel(handle, kCalled[0]) - index(kCalled[0]);
  for (size_t i = 0; i < kCalled.size(); ++i) {
    entries_[i].place = first + index(kCalled[i]);
    std::memcpy(entries_[i].kernel.data(), static_cast<const void*>(entries_[i].place), kKernelBytes);
  }
  std::istringstream lines(handle.dumpState());
  for (std::string line; std::getline(lines, line);) {
    const Registration kernel(line);
    if (!kernel.computes()) continue;
    if (kernel.of_cuda()) {
      opaque_on_cuda_ = opaque_on_cuda_ || kernel.may_be_python();
      continue;
    }
    opaque_ = opaque_ || (kernel.may_be_python() && !kernel.of_pytorch());
    (kernel.of_autograd() ? own_autograd_ : own_) |= !kernel.of_pytorch();
  }
  if (!own_ && handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
    cpu_ = DispatchTable::kernel(handle, c10::DispatchKey::CPU);
  }
}

bool OperatorKernels::are_in_force() const {
  for (const Entry& entry : entries_) {
    if (std::memcmp(entry.kernel.data(), static_cast<const void*>(entry.place), kKernelBytes) != 0) return false;
  }
  return true;
}

bool OperatorKernels::call_cpu(const c10::OperatorHandle& handle, torch::jit::Stack& stack) const {
  if (!cpu_) return false;
  cpu_->callBoxed(handle, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return true;
}

}  // namespace remat
