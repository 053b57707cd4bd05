#include "observe/policy_scopes.h"

#include <algorithm>
#include <utility>

#include "pytorch/tensor_view.h"
#include "pytorch/tensors_of.h"

namespace remat {

ModulePlaces::Address ModulePlaces::address_of(const at::Tensor& tensor) {
  return {storage_of(tensor), tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize())};
}

void ModulePlaces::add(const at::Tensor& parameter, const ModulePlace& place) {
  if (!parameter.has_storage()) return;
  if (places_.emplace(address_of(parameter), place).second) {
    storages_.emplace_back(StoragePtr::reclaim_copy(storage_of(parameter)));
  }
}

const ModulePlace* ModulePlaces::find(c10::ArrayRef<const c10::IValue> inputs) const {
  const ModulePlace* place = nullptr;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (place != nullptr || !tensor.defined() || !is_plain(tensor)) return;
      const Address address = address_of(tensor);
      const auto behind = places_.upper_bound(address);
      if (behind == places_.begin()) return;
      const auto& [start, found] = *std::prev(behind);
      if (start.first == address.first) place = &found;
    });
  }
  return place;
}

PolicyScopes::Id PolicyScopes::open(PolicyRules rules) {
  scopes_.push_back({++last_, {0, std::move(rules)}, nullptr});
  return last_;
}

PolicyScopes::Id PolicyScopes::open(ModulePlaces modules) {
  scopes_.push_back({++last_, {}, std::make_unique<const ModulePlaces>(std::move(modules))});
  ++following_;
  return last_;
}

void PolicyScopes::close(Id id) {
  const auto scope = std::ranges::find(scopes_, id, &Scope::id);
  if (scope == scopes_.end()) return;
  if (scope->modules != nullptr) --following_;
  scopes_.erase(scope);
}

void PolicyScopes::enter_module(c10::ArrayRef<const c10::IValue> inputs) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->modules == nullptr) return;  // a user's scope inside decides
    // One that reads no parameter goes on with what the last module made.
    if (const ModulePlace* const place = scope->modules->find(inputs)) scope->place = *place;
  }
}

const Policy::Rules* PolicyScopes::rules() const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->place.rules != nullptr) return scope->place.rules.get();
  }
  return nullptr;
}

PolicyScopes::Region PolicyScopes::outermost() const {
  for (const Scope& scope : scopes_) {
    if (scope.place.rules != nullptr) return {scope.id, scope.place.region};
  }
  return {};
}

}  // namespace remat
