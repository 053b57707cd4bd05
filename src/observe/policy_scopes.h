// src/observe/policy_scopes.h -- the policy scopes that are open on a thread. The rules of some change with the module
// of a model that operators belong to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include "tape/policy_rules.h"

namespace remat {

using PolicyRules = std::shared_ptr<const Policy::Rules>;

/// Where a parameter belongs.
struct ModulePlace {
  uint32_t region = 0;  ///< number of the outermost module that has a policy; 0: none has
  PolicyRules rules;    ///< of the innermost that has one
};

/// The modules that parameters belong to. Known by their memory, since an operator may read a view of a parameter.
class ModulePlaces {
 public:
  /// Of parameters in the same memory, the first counts.
  void add(const at::Tensor& parameter, const ModulePlace& place);
  /// Where an operator with such inputs belongs; null where it reads no parameter.
  const ModulePlace* find(c10::ArrayRef<const c10::IValue> inputs) const;

 private:
  using Address = std::pair<const c10::StorageImpl*, int64_t>;  // and the bytes from its beginning

  static Address address_of(const at::Tensor& tensor);

  std::map<Address, ModulePlace> places_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;  // so that no other one gets such an address
};

class PolicyScopes {
 public:
  using Id = uint64_t;

  /// Which part of a program the outermost scope with rules is. None: no scope has any.
  struct Region {
    Id scope = 0;
    uint32_t module = 0;
    bool operator==(const Region&) const = default;
  };

  /// Opens a scope inside of all others.
  Id open(PolicyRules rules);
  /// Opens one with the rules of the module that operators belong to.
  Id open(ModulePlaces modules);
  /// Scopes may end in any order.
  void close(Id id);

  bool follow_modules() const { return following_ > 0; }
  /// An operator with such inputs is next.
  void enter_module(c10::ArrayRef<const c10::IValue> inputs);

  /// Of the innermost scope that has any; null: none has.
  const Policy::Rules* rules() const;
  Region outermost() const;

 private:
  struct Scope {
    Id id;
    ModulePlace place;
    std::unique_ptr<const ModulePlaces> modules;  // null: the place stays
  };

  std::vector<Scope> scopes_;
  Id last_ = 0;
  int following_ = 0;
};

}  // namespace remat
