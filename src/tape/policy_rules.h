// src/tape/policy_rules.h -- what is behind a Policy.
#pragma once

#include <string>
#include <vector>

#include <remat/policy.h>

#include "operators/operator_info.h"

namespace remat {

struct Policy::Rules {
  enum class Kind : uint8_t { kKeepAll, kDropAll, kKeepOperators, kKeepCompute };
  Kind kind = Kind::kKeepAll;
  std::vector<std::string> names;  ///< for kKeepOperators: with overload, or without for all of them

  /// Does a saved result of this operator stay in memory?
  bool keeps(const OperatorInfo& info) const {
    switch (kind) {
      case Kind::kKeepAll:
        return true;
      case Kind::kDropAll:
        return false;
      case Kind::kKeepCompute:
        return info.compute;
      case Kind::kKeepOperators:
        break;
    }
    for (const auto& name : names) {
      if (name == info.name || info.name.compare(0, info.base_length, name) == 0) return true;
    }
    return false;
  }
};

}  // namespace remat
