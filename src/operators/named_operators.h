// src/operators/named_operators.h -- what the names that users give stand for.
#pragma once

#include <string>

namespace remat {

/// The registered operators that a name with an overload ("aten::add.Tensor") or without ("aten::add": every one)
/// stands for. (Where others have the name too, overloads for `out=` do not count.)
struct NamedOperators {
  bool exist = false;
  bool never_recorded = false;  ///< all of them are views, or made of other operators
  std::string why;              ///< they never are, and what to name instead, for a message
};

struct OperatorInfo;

/// Not so views, and operators that are made of others.
bool is_recorded(const OperatorInfo& info);

/// Thread-safe.
NamedOperators operators_named(const std::string& name);

}  // namespace remat
