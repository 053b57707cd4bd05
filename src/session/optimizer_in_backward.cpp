#include <remat/optimizer_in_backward.h>

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/optim/optimizer.h>

#include <remat/error.h>
#include <remat/paged_optimizer.h>

#include <remat/support/number_text.h>
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "pytorch/autograd_engine.h"
#include "session/gradient_hook.h"
#include "tape/trace.h"
#include "tiers/parameter_update.h"

namespace remat {
namespace {

/// Of the step that this thread records.
void tell_accounts(void (memory::Ledger::*event)() noexcept, void (Trace::*traced_event)()) {
  const Recorder* const recorder = Recorder::current();
  if (recorder == nullptr) return;
  const auto tape = recorder->tape();
  const std::lock_guard lock(tape->mutex);
  if (tape->values.ledger != nullptr) (tape->values.ledger->*event)();
  if (tape->trace != nullptr) (tape->trace->*traced_event)();
}

using BeforeUpdate = std::function<void(const at::Tensor&)>;

constexpr int kNoPass = -1;  // as autograd numbers the absence of one

/// The group that each parameter is in.
using Groups = std::unordered_map<const at::TensorImpl*, size_t>;

Groups groups_of(torch::optim::Optimizer& optimizer) {
  Groups groups;
  for_each_parameter(optimizer, [&](const at::Tensor& parameter, size_t group) {
    if (groups.emplace(parameter.unsafeGetTensorImpl(), group).second) return;
    throw Error("[optimizer in backward] a parameter of shape " + support::list_text(parameter.sizes()) +
                " is in the optimizer's groups twice; give each once");
  });
  return groups;
}

}  // namespace

struct OptimizerInBackward::Impl : std::enable_shared_from_this<Impl> {
  Impl(torch::optim::Optimizer& given, int64_t passes_per_step, BeforeUpdate before)
      : optimizer(given), accumulate(passes_per_step), before_update(std::move(before)) {}

  torch::optim::Optimizer& optimizer;
  const int64_t accumulate;
  const BeforeUpdate before_update;  ///< may be empty
  int64_t passes = 0;                ///< that have ended since the last update
  int pass = kNoPass;                ///< in progress, or failed
  int64_t updated = 0;               ///< parameters, in that pass
  Groups groups;                     ///< when that pass began
  GradientHooks hooks;
  bool removed = false;  ///< a pass may be in progress still

  void watch(const at::Tensor& parameter) {
    hooks.add(parameter, "[optimizer in backward]", [weak = weak_from_this()](const at::Tensor& complete) {
      if (const auto ours = weak.lock()) ours->gradient_is_complete(complete);
    });
  }
  void remove() {
    removed = true;
    hooks.remove();
  }

  void gradient_is_complete(const at::Tensor& parameter) {
    begin_pass();
    if (passes + 1 < accumulate) return;
    const auto group = groups.find(parameter.unsafeGetTensorImpl());
    if (group != groups.end()) update(parameter, group->second);
  }

  void begin_pass() {
    const int current = torch::autograd::get_current_graph_task_id();
    if (current == pass) return;
    if (in_nested_backward()) {
      throw Error(
          "[optimizer in backward] this backward pass runs inside of another one, as reentrant checkpoints do, "
          "so that gradients may be complete more than once; use checkpoints that run none" +
          after_updates());
    }
    if (updated > 0) {
      throw Error("[optimizer in backward] a backward pass failed after " + std::to_string(updated) +
                  " parameters were updated, and others were not; load model and optimizer from a checkpoint, clear "
                  "gradients, then reset()");
    }
    if (pass != kNoPass && accumulate > 1) {
      throw Error("[optimizer in backward] backward pass " + std::to_string(passes + 1) + " of " +
                  std::to_string(accumulate) + " of a step failed; clear gradients, reset(), and begin the step again");
    }
    if (c10::GradMode::is_enabled()) {
      throw Error(
          "[optimizer in backward] backward with create_graph needs parameters and gradients as they are; "
          "leave it out");
    }
    groups = groups_of(optimizer);
    pass = current;
    // After all other callbacks of this pass, in which shards may get their gradients: one that is queued by a callback
    // comes last.
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback(
        [&engine, ours = shared_from_this()] { engine.queue_callback([ours] { ours->end_pass(); }); });
  }

  std::string after_updates() const {
    if (updated == 0) return {};
    return ". " + std::to_string(updated) +
           " parameters were updated before: load model and optimizer from a checkpoint";
  }

  /// Called when the pass has come to its end, but not when it has failed.
  void end_pass() {
    if (!removed && ++passes == accumulate) {
      passes = 0;  // also where an update throws
      // What got its gradient in an earlier pass alone, or came to the optimizer later.
      for_each_parameter(optimizer, [this](const at::Tensor& parameter, size_t group) {
        if (parameter.grad().defined()) update(parameter, group);
      });
      if (auto* const paged = PagedOptimizer::of(optimizer)) paged->end_step();
    }
    pass = kNoPass;
    updated = 0;
  }

  void update(const at::Tensor& parameter, size_t group) {
    if (before_update) before_update(parameter);
    ++updated;
    {
      const ParameterUpdate state_is_no_activation;
      if (auto* const paged = PagedOptimizer::of(optimizer)) {
        paged->update(parameter, group);
      } else {
        update_in_parts(optimizer, group, parameter);
      }
    }
    parameter.mutable_grad().reset();
  }
};

OptimizerInBackward::OptimizerInBackward(torch::optim::Optimizer& optimizer, int64_t accumulate,
                                         BeforeUpdate before_update)
    : impl_(std::make_shared<Impl>(optimizer, accumulate, std::move(before_update))) {
  check_updates_one_by_one(optimizer, "[optimizer in backward]");
  if (accumulate < 1) {
    throw Error("[optimizer in backward] accumulate is " + std::to_string(accumulate) +
                "; use the backward passes per step, 1 or more");
  }
  groups_of(optimizer);
  for_each_parameter(optimizer, [this](const at::Tensor& parameter, size_t) {
    if (parameter.requires_grad()) impl_->watch(parameter);
  });
}

OptimizerInBackward::OptimizerInBackward(OptimizerInBackward&&) noexcept = default;
OptimizerInBackward& OptimizerInBackward::operator=(OptimizerInBackward&& other) noexcept {
  if (this != &other) {
    if (impl_) impl_->remove();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
OptimizerInBackward::~OptimizerInBackward() {
  if (impl_) impl_->remove();
}

OptimizerInBackward::Impl& OptimizerInBackward::impl() const {
  if (!impl_) throw Error("[optimizer in backward] this one was moved from; use the one that it was moved to");
  return *impl_;
}

bool OptimizerInBackward::is_between_steps() const { return impl().updated > 0; }

void OptimizerInBackward::reset() {
  impl().passes = 0;
  impl().pass = kNoPass;
  impl().updated = 0;
}

ParameterUpdate::ParameterUpdate() { tell_accounts(&memory::Ledger::begin_update, &Trace::update_begins); }
bool ParameterUpdate::is_in_nested_backward() { return in_nested_backward(); }
ParameterUpdate::~ParameterUpdate() { tell_accounts(&memory::Ledger::end_update, &Trace::update_ends); }

}  // namespace remat
