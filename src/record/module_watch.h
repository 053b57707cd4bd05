// src/record/module_watch.h -- which module of a model an operator belongs to, and the policy that holds there.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include "record/policy_rules.h"

namespace remat {

/// Where a parameter belongs.
struct ModulePlace {
  uint32_t region = 0;                         ///< number of the outermost module that has a policy; 0: none has
  std::shared_ptr<const Policy::Rules> rules;  ///< of the innermost that has one
};

/// The policy scopes that a recorder opens and closes by itself, as operators read parameters.
struct ModuleWatch {
  std::unordered_map<const c10::StorageImpl*, ModulePlace> places;  ///< by the parameter's storage
  size_t depth = 0;                                                 ///< policy scopes that were open before
  uint32_t region = 0;                                              ///< that operators belong to now

  /// Where an operator with such inputs belongs; null where it reads no parameter.
  const ModulePlace* place_of(c10::ArrayRef<const c10::IValue> inputs) const;
};

}  // namespace remat
