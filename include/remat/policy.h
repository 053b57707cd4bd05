// remat/policy.h -- which saved values a region of the forward pass keeps, where no budget decides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat {

/// Says of each value that autograd saves whether it is kept or dropped (and recomputed when backward asks for it).
///
/// A policy judges only values that are *produced* inside its scope: values from outside are kept, so that no replay
/// reaches beyond the scope. Under a budget they too may be dropped when memory runs short. An immutable value type.
class Policy {
 public:
  /// Keep everything that autograd saves, as plain PyTorch does.
  static Policy keep_all();
  /// Drop everything that can be recomputed exactly.
  static Policy drop_all();
  /// Keep the results of the named operators ("aten::mm" names every overload, "aten::add.Tensor" one), drop the rest.
  /// Throws Error for a name that no registered operator has, and for views and operators that are made of others
  /// ("aten::linear"), which are never recorded: the message names their parts, such as "aten::addmm", to be named
  /// instead.
  static Policy keep_operators(std::vector<std::string> names);
  /// Keep the results of matrix products, convolutions and attention, drop the rest: the "selective" policy.
  static Policy keep_compute();

  struct Rules;  // defined inside the library

 private:
  friend class PolicyScope;
  friend class ModulePolicies;
  explicit Policy(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {}
  std::shared_ptr<const Rules> rules_;
};

/// While it lives, values produced on this thread follow `policy`. Scopes nest; the innermost decides.
///
/// Inside a session's step the step's budget holds as well: what a policy keeps may still be dropped under pressure.
/// Works without a session too; then nothing but the policy drops values.
class PolicyScope {
 public:
  /// Begins the scope on this thread; it must end there too.
  explicit PolicyScope(const Policy& policy);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Marks the value of `tensor` as one never to drop in this step, whatever the policy or budget says. Returns `tensor`.
/// Outside a step and a scope it does nothing.
at::Tensor keep(const at::Tensor& tensor);

}  // namespace remat
