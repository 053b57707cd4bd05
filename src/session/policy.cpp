#include <remat/policy.h>

#include <remat/error.h>
#include <remat/memory.h>

#include "observe/tapes.h"
#include "observe/variable_hooks.h"
#include "operators/named_operators.h"
#include "operators/special_operator.h"
#include "replay/saved_tensor.h"
#include "session/policy_tape.h"
#include "tape/policy_rules.h"

namespace remat {
namespace {

std::shared_ptr<const Policy::Rules> rules_of(Policy::Rules::Kind kind) {
  return std::make_shared<const Policy::Rules>(Policy::Rules{kind, {}});
}

}  // namespace

Policy Policy::keep_all() { return Policy(rules_of(Rules::Kind::kKeepAll)); }
Policy Policy::drop_all() { return Policy(rules_of(Rules::Kind::kDropAll)); }
Policy Policy::keep_compute() { return Policy(rules_of(Rules::Kind::kKeepCompute)); }

Policy Policy::keep_operators(std::vector<std::string> names) {
  for (const auto& name : names) {
    const NamedOperators named = operators_named(name);
    if (!named.exist) {
      throw Error("[policy] no operator is named \"" + name +
                  "\"; write names as in PyTorch's schemas, such as \"aten::mm\" or \"aten::add.Tensor\"");
    }
    if (named.never_recorded) throw Error("[policy] \"" + name + "\" " + named.why);
  }
  return Policy(std::make_shared<const Rules>(Rules{Rules::Kind::kKeepOperators, std::move(names)}));
}

namespace {

/// So that memory which is freed and made anew is known by its number, as that of parameters that FSDP2 shards.
void start_accounting_where_possible() {
  try {
    memory::start_accounting();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): another library's allocator stays, as without a scope
  }
}

}  // namespace

PolicyTape::PolicyTape() {
  if (Recorder::current() == nullptr) {  // no session: a tape of the scope's own
    start_accounting_where_possible();
    install_saved_tensors();
    install_variable_hooks();
    check_special_operators();
    Recorder::start(Tapes::all().make());
  }
  tape_ = Recorder::current()->tape();
  ++tape_->policy_scopes;
}

Recorder* PolicyTape::recorder() const { return Recorder::current_of(tape_); }

PolicyTape::~PolicyTape() {
  const bool last = --tape_->policy_scopes == 0 && tape_->extent == nullptr;
  if (recorder() == nullptr) {
    if (last) tape_->closed = true;
    return;
  }
  {
    const std::lock_guard lock(tape_->mutex);
    tape_->drop_idle();
  }
  if (last) Recorder::stop();
}

struct PolicyScope::Impl {
  PolicyTape tape;
  PolicyScopes::Id scope = 0;
};

PolicyScope::PolicyScope(const Policy& policy) : impl_(std::make_unique<Impl>()) {
  impl_->scope = impl_->tape.recorder()->push_scope(policy.rules_);
}

PolicyScope::~PolicyScope() {
  if (Recorder* const recorder = impl_->tape.recorder()) recorder->pop_scope(impl_->scope);
}

at::Tensor keep(const at::Tensor& tensor) {
  if (Recorder* const recorder = Recorder::current(); recorder != nullptr && tensor.defined() && is_plain(tensor)) {
    Tape& tape = *recorder->tape();
    const std::lock_guard lock(tape.mutex);
    const ValueId id = tape.values.find(storage_of(tensor));
    if (id != kNoId) tape.values.pin(id);
  }
  return tensor;
}

}  // namespace remat
