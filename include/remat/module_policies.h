// remat/module_policies.h -- policies for the modules of a model by their paths; the model's code stays as it is.
//
//   const remat::ModulePolicies policies(model->named_parameters().pairs(),
//                                        {{"blocks.*", remat::Policy::drop_all()},
//                                         {"blocks.*.attention", remat::Policy::keep_all()}});
//   at::Tensor loss;
//   {
//     remat::ModulePolicyScope scope(policies);
//     loss = loss_of(model->forward(x), y);
//   }
//   loss.backward();
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <remat/policy.h>

namespace remat {

/// Policies by the paths of modules, "blocks.3.attention". In a pattern `*` stands for any characters but dots, `**`
/// for dots too; alone they stand for the model itself as well. Of modules inside of each other the innermost that a
/// pattern matches decides, of patterns for one module the last. An immutable value type; it holds the parameters.
class ModulePolicies {
 public:
  /// As `named_parameters().pairs()` gives them.
  using Parameters = std::vector<std::pair<std::string, at::Tensor>>;
  /// A pattern, and the policy of the modules that it matches.
  using Rules = std::vector<std::pair<std::string, Policy>>;

  /// `parameters`: `model->named_parameters().pairs()`, by which modules are known. Throws Error for a pattern that
  /// matches no module with parameters, in it or in modules inside of it.
  ModulePolicies(const Parameters& parameters, const Rules& rules);

 private:
  friend class ModulePolicyScope;
  struct Table;
  std::shared_ptr<const Table> table_;
};

/// While it lives, each module of `policies` is a PolicyScope for what it computes on this thread.
///
/// LibTorch's modules have no hooks, so which one runs is told by the parameters that operators read: a module begins
/// with the first operator that reads a parameter of it, and goes on until one reads a parameter of another module. So
/// an activation that a block begins with belongs to the block before, and what another model computes belongs to the
/// module that ran before it: end the scope first. A parameter that modules share belongs to the first of them. That
/// changes which values are dropped, never a bit.
///
/// A PolicyScope that is opened inside decides until it ends. Scopes nest; each must end on its own thread. Open one
/// for each forward pass: the parameters are looked up then, so that what is put into them later (`set_data`, `to`) is
/// not known, and without a session the record grows while a scope lives.
class ModulePolicyScope {
 public:
  /// Begins the scope on this thread; it must end there too.
  explicit ModulePolicyScope(const ModulePolicies& policies);
  ~ModulePolicyScope();
  ModulePolicyScope(const ModulePolicyScope&) = delete;
  ModulePolicyScope& operator=(const ModulePolicyScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat
