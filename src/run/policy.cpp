#include <remat/policy.h>

#include <remat/error.h>

#include "record/autograd_engine.h"
#include "record/policy_rules.h"
#include "record/recorder.h"
#include "record/variable_hooks.h"
#include "run/batch_norm.h"
#include "run/saved_tensor.h"

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
    if (!operator_exists(name)) {
      throw Error("[policy] no operator is named \"" + name +
                  "\"; write names as in PyTorch's schemas, such as \"aten::mm\" or \"aten::add.Tensor\"");
    }
  }
  return Policy(std::make_shared<const Rules>(Rules{Rules::Kind::kKeepOperators, std::move(names)}));
}

struct PolicyScope::Impl {
  std::shared_ptr<Tape> tape;  ///< the one whose recorder has the scope
  bool owns_recorder = false;
};

PolicyScope::PolicyScope(const Policy& policy) : impl_(std::make_unique<Impl>()) {
  if (Recorder::current() == nullptr) {  // no session: a tape of the scope's own
    install_autograd_engine(make_saved_tensor);
    install_variable_hooks();
    check_batch_norm();
    Recorder::start(std::make_shared<Tape>());
    impl_->owns_recorder = true;
  }
  Recorder::current()->push_scope(policy.shared_rules());
  impl_->tape = Recorder::current()->tape();
}

PolicyScope::~PolicyScope() {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr ||
      recorder->tape() != impl_->tape) {  // the step ended inside the scope, or another thread ends it
    if (impl_->owns_recorder) impl_->tape->closed = true;
    return;
  }
  recorder->pop_scope();
  {
    const std::lock_guard lock(impl_->tape->mutex);
    impl_->tape->drop_idle();
  }
  if (impl_->owns_recorder) Recorder::stop();
}

at::Tensor keep(const at::Tensor& tensor) {
  if (Recorder* const recorder = Recorder::current(); recorder != nullptr && tensor.defined() && is_plain(tensor)) {
    Tape& tape = *recorder->tape();
    const std::lock_guard lock(tape.mutex);
    const ValueId id = tape.values.find(storage_of(tensor));
    if (id != kNone) tape.values.pin(id);
  }
  return tensor;
}

}  // namespace remat
