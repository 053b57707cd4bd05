#include "operators/collectives.h"

#include <algorithm>
#include <array>

#include <ATen/core/jit_type.h>

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

}  // namespace remat
