// Collective communication. Every process has to take part, so that no replay may run one, and most write to tensors
// that their schemas do not mark. Where several processes take their steps together, the engine is told before c10d's
// begin: whoever observes operators cannot stop one, so their kernels are replaced for that. Without this file any
// operator that is not PyTorch's own is taken for one of these, and processes do not agree before collectives.
#include "operators/collectives.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include "device/dispatch_keys.h"
#include "memory/ledger.h"
#include "memory/silent_warnings.h"
#include "operators/operator_info.h"
#include "operators/special_operator.h"
#include "util/mutex.h"

namespace remat {
namespace {

/// Which tensors the operators of a namespace may write to.
enum class Writes : uint8_t {
  kAsDeclared,    ///< those that the schema marks
  kAllButInputs,  ///< all whose names do not say that they are inputs: the schemas mark nothing
  kAll,           ///< all: memory that other processes write to
};

struct Namespace {
  std::string_view prefix;
  Writes writes = Writes::kAll;
};
constexpr std::array<Namespace, 8> kNamespaces = {{
    {"c10d::", Writes::kAllButInputs},
    {"_c10d_functional::", Writes::kAsDeclared},
    {"_c10d_functional_autograd::", Writes::kAsDeclared},
    {"c10d_functional::", Writes::kAsDeclared},
    {"_dtensor::", Writes::kAsDeclared},
    {"fsdp::", Writes::kAllButInputs},
    {"symm_mem::", Writes::kAll},
    {"torchcomms::", Writes::kAll},
}};

/// Of c10d, with arguments that are not named as inputs.
constexpr std::array<std::string_view, 4> kReadOnly = {"c10d::send", "c10d::barrier", "c10d::monitored_barrier_",
                                                       "c10d::check_for_nan"};
/// The functional operators that write to what they are given. Results of the others come in until wait_tensor() or,
/// from torch 2.15 on, wait_tensors(), which give back the very tensors.
constexpr std::array<std::string_view, 5> kWritesAll = {
    "_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors", "_c10d_functional::irecv",
    "_c10d_functional::batch_p2p_ops", "c10d_functional::wait_tensor"};

const Namespace* namespace_of(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kNamespaces, [&](const auto& n) { return name.starts_with(n.prefix); });
  return found == kNamespaces.end() ? nullptr : found;
}

/// A tensor, or lists of tensors however deep.
bool holds_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  return std::ranges::any_of(type->containedTypes(), holds_tensors);
}

}  // namespace

bool is_collective(std::string_view name) { return namespace_of(name) != nullptr; }

c10::SmallVector<uint16_t, 2> written_by_collective(const c10::FunctionSchema& schema) {
  const std::string_view name(schema.name());
  const Namespace* const space = namespace_of(name);
  Writes writes = space == nullptr ? Writes::kAsDeclared : space->writes;
  if (std::ranges::find(kReadOnly, name) != kReadOnly.end()) writes = Writes::kAsDeclared;
  if (std::ranges::find(kWritesAll, name) != kWritesAll.end()) writes = Writes::kAll;
  c10::SmallVector<uint16_t, 2> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool marked = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const bool input = argument.name().find("input") != std::string::npos;
    const bool unmarked = writes == Writes::kAll || (writes == Writes::kAllButInputs && !input);
    if (marked || (unmarked && holds_tensors(argument.type()))) written.push_back(static_cast<uint16_t>(i));
  }
  return written;
}

namespace {

void describe(OperatorInfo& info) {
  info.collective = is_collective(info.base_view());
  if (info.collective) info.written = written_by_collective(info.handle.schema());
}

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
  Kernel(c10::SafeKernelFunction replaced, c10::DispatchKey key, const Engine& engine)
      : replaced_(std::move(replaced)), key_(key), engine_(engine) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    engine_.before_collective(op.schema().name(), [&] {
      const bool sparse = key_ == device::kHostKeys.sparse;
      if (sparse || key_ == device::kHostKeys.kernels) make_room_for_buffers(op, *stack, sparse);
    });
    replaced_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction replaced_;
  c10::DispatchKey key_;
  const Engine& engine_;
};

/// Those in which all ranks take part: whoever only sends to another one, or receives, waits for none of the others.
std::shared_ptr<torch::Library> replace_kernels(c10::DispatchKey key, const Engine& engine) {
  const SilentWarnings silent;  // PyTorch warns of kernels that are replaced
  auto library = std::make_shared<torch::Library>(torch::Library::IMPL, "c10d", key, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("c10d::") || is_among(kBetweenTwoRanks, name.name)) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(key)) continue;
    auto kernel = std::make_unique<Kernel>(op->getComputedKernelForDispatchKey(key), key, engine);
    library->impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
  return library;
}

/// While the returned object lives, c10d's operators on tensors of that kind of device call
/// Engine::before_collective().
std::shared_ptr<const void> install(const Installation& installation) {
  if (!installation.has_ranks) return nullptr;
  static Mutex mutex;
  static std::map<c10::DispatchKey, std::weak_ptr<torch::Library>> libraries;
  const device::Keys* const keys = device::find_keys(installation.device);
  if (keys == nullptr) return nullptr;
  auto held = std::make_shared<std::vector<std::shared_ptr<torch::Library>>>();
  const MutexLock lock(mutex);
  for (const auto key : {keys->kernels, keys->sparse}) {
    auto library = libraries[key].lock();
    if (library == nullptr) libraries[key] = library = replace_kernels(key, installation.engine);
    held->push_back(std::move(library));
  }
  return held;
}

}  // namespace

const SpecialOperator special::kCollectives = {
    .name = "collectives", .settles = Doubt::kCommunication, .describe = describe, .install = install};

}  // namespace remat
