#include "operators/named_operators.h"

#include <algorithm>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "operators/composites.h"
#include "operators/operator_info.h"

namespace remat {
namespace {

bool fills_out(const OperatorInfo& info) {
  return std::ranges::any_of(info.handle.schema().arguments(), [](const c10::Argument& argument) {
    return argument.kwarg_only() && argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

std::string why_never_recorded(const OperatorInfo& info, const std::vector<const OperatorInfo*>& overloads) {
  if (!info.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return "is a view, which is kept with the value that it looks at; name the operator that makes that value";
  }
  std::string parts(parts_of(info.base_view()));
  if (parts.empty()) {  // most call another overload
    for (const OperatorInfo* const overload : overloads) {
      if (!overload->never_recorded && !fills_out(*overload)) parts += (parts.empty() ? "" : ", ") + overload->name;
    }
  }
  return "is made of other operators, which are recorded in its place; name these: " +
         (parts.empty() ? "those in the graph of a step that calls it (Session::graph())" : parts);
}

}  // namespace

bool is_recorded(const OperatorInfo& info) { return !info.never_recorded && !is_known_composite(info.base_view()); }

NamedOperators operators_named(const std::string& name) {
  NamedOperators named;
  const std::string base = name.substr(0, name.find('.'));
  std::vector<const OperatorInfo*> overloads, meant;
  for (const auto& registered : c10::Dispatcher::singleton().getAllOpNames()) {
    if (registered.name != base) continue;
    const bool is_meant = name == base || base + "." + registered.overload_name == name;
    named.exist = named.exist || is_meant;
    const OperatorInfo* const info = operator_info(registered);
    if (info == nullptr) continue;
    overloads.push_back(info);
    if (is_meant) meant.push_back(info);
  }
  const auto counted = std::ranges::partition(meant, [](const OperatorInfo* info) { return !fills_out(*info); });
  if (counted.begin() != meant.begin()) meant.erase(counted.begin(), meant.end());
  named.never_recorded =
      !meant.empty() && std::ranges::all_of(meant, [](const OperatorInfo* info) { return !is_recorded(*info); });
  if (named.never_recorded) named.why = why_never_recorded(*meant.front(), overloads);
  return named;
}

}  // namespace remat
