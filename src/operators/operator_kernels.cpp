#include "operators/operator_kernels.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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

/// By which a call on any device may come, before those of the device: for views and writes, for factories, for tensors
/// with a flag.
constexpr std::array<c10::DispatchKey, 5> kBeforeDevices = {c10::DispatchKey::ADInplaceOrView,
                                                            c10::DispatchKey::BackendSelect, c10::DispatchKey::Negative,
                                                            c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor};

/// By which a call may come. The first is autograd's on the CPU.
constexpr auto kCalled = [] {
  std::array<c10::DispatchKey, OperatorKernels::kKeys> keys{};
  size_t count = 0;
  for (const device::Keys& device : device::kKeys) {
    for (const auto key : {device.autograd, device.autocast, device.kernels}) keys[count++] = key;
  }
  for (const auto key : kBeforeDevices) keys[count++] = key;
  return keys;
}();

/// How the names of keys begin at which results are computed: not those of tracing, modes and the meta device.
const std::vector<std::string>& computing_keys() {
  static const auto* const names = [] {
    auto* const made = new std::vector<std::string>{"Autograd", "Composite", "Sparse", "Quantized", "Mkldnn"};
    for (const auto key : kCalled) made->emplace_back(c10::toString(key));
    return made;
  }();
  return *names;
}

/// Kernels at these stand in for one at a device's key that is not there.
constexpr std::array<c10::DispatchKey, 3> kComposite = {c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
                                                        c10::DispatchKey::CompositeExplicitAutograd,
                                                        c10::DispatchKey::CompositeImplicitAutograd};

constexpr std::array<std::string_view, 5> kCppFiles = {".cpp", ".cc", ".cxx", ".cu", ".mm"};

/// A file of PyTorch's at the end of each folder of its sources, or the beginning of the file's name.
constexpr std::array<std::array<std::string_view, 2>, 3> kFilesOfPyTorch = {{
    {"aten/src/ATen/", "RegisterSchema.cpp:"},
    {"aten/src/ATen/", "ConjugateFallback.cpp:"},
    {"torch/csrc/", "autograd/generated/VariableType_"},
}};

constexpr std::string_view kRegisteredAt = " registered at ";

/// The folders of PyTorch's sources as they were named when it was built, such as "/pytorch/aten/src/ATen/". A library
/// may have folders that are called the same, elsewhere.
const std::vector<std::string>& folders_of_pytorch() {
  static const auto* const folders = [] {
    auto* const found = new std::vector<std::string>;
    const std::string state = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "").dumpState();
    for (const auto& [folder, file] : kFilesOfPyTorch) {
      const size_t at = state.find(std::string(folder) + std::string(file));
      if (at == std::string::npos) continue;
      const size_t begin = state.rfind(kRegisteredAt, at);
      if (begin == std::string::npos) continue;
      const size_t path = begin + kRegisteredAt.size();
      found->push_back(state.substr(path, at + folder.size() - path));
    }
    return found;
  }();
  return *folders;
}

/// A line of OperatorHandle::dumpState(), as "CPU: registered at a/file.cpp:12 :: (Tensor _0) -> Tensor _0 [ boxed ]".
class Registration {
 public:
  explicit Registration(std::string_view line) : line_(line) {
    const size_t at = line.find(kRegisteredAt), end = line.find(" :: ");
    if (at == std::string_view::npos || end == std::string_view::npos || end < at) return;
    file_ = line.substr(at + kRegisteredAt.size(), end - at - kRegisteredAt.size());
    file_ = file_.substr(0, file_.rfind(':'));
  }

  /// Is it of a kernel that is called, and computes what the caller is given?
  bool computes() const {
    const size_t end = line_.find(": registered ");
    if (end == std::string_view::npos || line_.find(" [ boxed") == std::string_view::npos) return false;
    const std::string_view key = line_.substr(0, end);
    if (key.find("(inactive)") != std::string_view::npos) return false;
    return std::ranges::any_of(computing_keys(), [&](const std::string& begin) { return key.starts_with(begin); });
  }
  /// Replays are made below these.
  bool of_autograd() const { return line_.starts_with("Autograd") || line_.starts_with("ADInplaceOrView"); }
  bool of_autocast() const { return line_.starts_with("Autocast"); }
  /// Another than the CPU.
  bool of_device() const {
    return std::any_of(device::kKeys.begin() + 1, device::kKeys.end(), [&](const device::Keys& device) {
      const std::string_view key = c10::toString(device.kernels);
      return line_.starts_with(key) && line_.substr(key.size()).starts_with(':');
    });
  }
  bool of_pytorch() const {
    return std::ranges::any_of(folders_of_pytorch(),
                               [&](const std::string& folder) { return file_.starts_with(folder); });
  }
  /// By the Python that comes with PyTorch, which registers kernels for CUDA alone.
  bool of_pytorch_in_python() const { return file_.ends_with("/torch/_native/registry.py"); }
  /// May it be a function of Python's? Those are boxed. So are compiled kernels, and few others.
  bool may_be_python() const { return line_.ends_with(":: (none) [ boxed ]") && !of_pytorch(); }
  /// On other devices all kernels may be boxed: of Python's are those that are registered in its files, or in none.
  bool may_be_python_on_device() const { return may_be_python() && !is_in_cpp_file(); }

 private:
  bool is_in_cpp_file() const {
    return std::ranges::any_of(kCppFiles, [&](std::string_view suffix) { return file_.ends_with(suffix); });
  }

  std::string_view line_, file_;
};

/// Does the dispatcher call the fallback for all operators on `device`, since this one has no kernel there? PyTorch has
/// none for these devices.
bool is_called_by_fallback(const c10::OperatorHandle& handle, c10::DispatchKey device) {
  return handle.hasComputedKernelForDispatchKey(device) && !handle.hasKernelForDispatchKey(device) &&
         std::ranges::none_of(kComposite, [&](c10::DispatchKey key) { return handle.hasKernelForDispatchKey(key); });
}

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
    if (kernel.of_device()) {
      opaque_on_device_ = opaque_on_device_ || kernel.may_be_python_on_device();
      pytorch_python_on_device_ = opaque_on_device_ && kernel.of_pytorch_in_python();
      continue;
    }
    if (kernel.of_autocast()) {
      own_autocast_ |= !kernel.of_pytorch();
      opaque_under_autocast_ |= kernel.may_be_python();
      continue;
    }
    opaque_ |= kernel.may_be_python();
    (kernel.of_autograd() ? own_autograd_ : own_) |= !kernel.of_pytorch();
  }
  const bool by_fallback = is_called_by_fallback(handle, device::kHostKeys.kernels);
  opaque_ |= by_fallback;
  own_ |= by_fallback;
  // A device from outside has one for all operators that it has no kernel for.
  opaque_on_device_ |= is_called_by_fallback(handle, device::kKeys[1].kernels);
  if (!own_ && handle.hasComputedKernelForDispatchKey(device::kHostKeys.kernels)) {
    host_ = DispatchTable::kernel(handle, device::kHostKeys.kernels);
  }
}

bool OperatorKernels::are_in_force() const {
  for (const Entry& entry : entries_) {
    if (std::memcmp(entry.kernel.data(), static_cast<const void*>(entry.place), kKernelBytes) != 0) return false;
  }
  return true;
}

bool OperatorKernels::call_on_host(const c10::OperatorHandle& handle, torch::jit::Stack& stack) const {
  if (!host_) return false;
  host_->callBoxed(handle, c10::DispatchKeySet(device::kHostKeys.kernels), &stack);
  return true;
}

}  // namespace remat
