#include "observe/collective_hook.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include "device/dispatch_keys.h"
#include "memory/ledger.h"
#include "memory/silent_warnings.h"
#include "observe/recorder.h"

namespace remat {
namespace {

constexpr std::array<std::string_view, 4> kBetweenTwoRanks = {"c10d::send", "c10d::recv_", "c10d::recv_any_source_",
                                                              "c10d::check_for_nan"};
/// Work in the memory that they are given, where that is dense.
constexpr std::array<std::string_view, 6> kInPlace = {
    "c10d::allreduce_", "c10d::broadcast_",         "c10d::reduce_",
    "c10d::barrier",    "c10d::monitored_barrier_", "c10d::alltoall_base_"};
/// Of what all ranks have of a sparse tensor one may hold so many times its own.
constexpr int64_t kSparseRoom = 8;

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Of all tensors, in lists too.
int64_t bytes_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return 0;
    if (tensor.layout() == at::kStrided) return static_cast<int64_t>(tensor.nbytes());
    if (tensor.layout() != at::kSparse) return 0;
    return kSparseRoom * static_cast<int64_t>(tensor._indices().nbytes() + tensor._values().nbytes());
  }
  int64_t bytes = 0;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) bytes += bytes_of(element);
  }
  return bytes;
}

/// Gloo copies to and from buffers of its own, which one of its threads allocates while the collective is under way.
/// Then it is too late to refuse them: memory is made free for them before.
void make_room_for_buffers(const c10::OperatorHandle& op, const torch::jit::Stack& stack, bool sparse) {
  if (!sparse && is_among(kInPlace, op.schema().name())) return;
  int64_t bytes = 0;
  for (const c10::IValue& argument : torch::jit::last(stack, op.schema().arguments().size()))
    bytes += bytes_of(argument);
  const memory::FrozenPlain frozen;
  c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes));  // and freed
}

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(c10::SafeKernelFunction replaced, c10::DispatchKey key) : replaced_(std::move(replaced)), key_(key) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    auto* const recorder = Recorder::current();
    if (recorder != nullptr && !recorder->is_suspended() && recorder->tape()->before_collective) {
      const Recorder::Suspension own_calls_pass(recorder);
      const bool sparse = key_ == device::kHostKeys.sparse;
      if (sparse || key_ == device::kHostKeys.kernels) make_room_for_buffers(op, *stack, sparse);
      recorder->tape()->before_collective(op.schema().name());
    }
    replaced_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction replaced_;
  c10::DispatchKey key_;
};

std::shared_ptr<torch::Library> replace_kernels(c10::DispatchKey key) {
  const SilentWarnings silent;  // PyTorch warns of kernels that are replaced
  auto library = std::make_shared<torch::Library>(torch::Library::IMPL, "c10d", key, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("c10d::") || is_among(kBetweenTwoRanks, name.name)) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(key)) continue;
    auto kernel = std::make_unique<Kernel>(op->getComputedKernelForDispatchKey(key), key);
    library->impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
  return library;
}

}  // namespace

std::shared_ptr<const void> hook_collectives(c10::DeviceType type) {
  static Mutex mutex;
  static std::map<c10::DispatchKey, std::weak_ptr<torch::Library>> libraries;
  const device::Keys* const keys = device::find_keys(type);
  if (keys == nullptr) return nullptr;
  auto held = std::make_shared<std::vector<std::shared_ptr<torch::Library>>>();
  const MutexLock lock(mutex);
  for (const auto key : {keys->kernels, keys->sparse}) {
    auto library = libraries[key].lock();
    if (library == nullptr) libraries[key] = library = replace_kernels(key);
    held->push_back(std::move(library));
  }
  return held;
}

}  // namespace remat
