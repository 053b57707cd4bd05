// remat/pool.h -- many trainings in one process, one budget.
//
//   remat::Pool pool("6GiB");
//   remat::Session actor({.budget = pool}), learner({.budget = pool});
#pragma once

#include <memory>

#include <remat/budget.h>

namespace remat {

/// A number of bytes that the sessions of one process share.
///
/// As under a budget in bytes, all tensors count: while a step of any of the sessions is in progress, what is alive on
/// the CPU stays under the pool's bytes. What sessions hold between their steps (parameters, gradients, optimizer
/// state) is theirs; the rest is shared by their steps:
///  - A step is granted its bytes as it begins, all at once, and gives them back as it ends. Steps that run one after
///    another each have all that is free.
///  - Of steps that run at once, or did so when they ran last, each is granted the least that it can do with, and one
///    more byte goes to whom it saves the most seconds of recomputation, in relation to how long its step takes. How
///    many that are is known of plans that the planner "auto" has searched for. What is left when nobody has to
///    recompute anything is divided equally.
///  - Where what is free is less than the least that a step can do with, Session::step() waits until others have ended,
///    first come, first served. A step that does not fit alone is refused by a BudgetError as without a pool, with the
///    smallest number that works.
///  - A step runs alone if it cannot be told what it needs: a session's first, one whose planner is not "auto" and that
///    does not fit without dropping anything, and the one after a step that was refused beside others.
///
/// A step of sizes never seen, which takes more than it was granted, may be refused beside others though it would fit
/// alone. An optimizer's first update, which makes its state, is outside of steps and does not wait: see
/// docs/budget.md. Where a step waits for a thread that itself waits for the pool, both wait for ever.
///
/// Results have the same bits as without a pool. On the CPU, for sessions of one process (without ranks). A handle:
/// copies are the same pool, which lives for as long as one of them or a session. Thread-safe. In a child after a fork
/// no step is in progress.
class Pool {
 public:
  /// `bytes`: a budget in bytes, as in Pool("6GiB"). Throws Error for one of another kind.
  explicit Pool(const Budget& bytes);

  /// For SessionOptions::budget and Session::set_budget().
  operator Budget() const;  // NOLINT(google-explicit-constructor): `.budget = pool`

  /// Of all tensors.
  int64_t bytes() const noexcept { return budget_.byte_count(); }
  /// Steps of its sessions that are in progress.
  int64_t running() const;
  /// Threads that wait in Session::step().
  int64_t waiting() const;

  bool operator==(const Pool&) const = default;

 private:
  Budget budget_;
};

}  // namespace remat
