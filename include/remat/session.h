// remat/session.h -- training steps within a byte budget.
//
//   remat::Session session({.budget = remat::Budget::parse("2GiB")});
//   for (auto& [x, y] : batches) {
//     auto step = session.step();
//     auto loss = torch::nll_loss(model->forward(x), y);
//     loss.backward();
//   }                                    // the step ends; everything that remat held is free again
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <remat/budget.h>
#include <remat/disk.h>
#include <remat/error.h>
#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/ranks.h>
#include <remat/report.h>

namespace remat {

namespace extension {
class CalledStep;
}

/// What a Session keeps to, and how. Each has a default: `Session session({.budget = "2GiB"})`.
struct SessionOptions {
  /// The most tensor bytes alive on the device at any moment of a step, or a Pool that several sessions share.
  /// Session::set_budget() gives another. Default: the device's limit.
  Budget budget = {};
  /// The device that the budget is for: the CPU; CUDA, or another that comes to PyTorch as PrivateUse1, which were
  /// tried on simulated devices alone, of which the session warns (TORCH_WARN, docs/devices.md); or meta, whose tensors
  /// have no memory: then there is no budget to keep, and graph() tells what the step would take. Others: Error.
  c10::Device device = c10::kCPU;
  /// Compares every recomputed value with a checksum taken when it was dropped; a difference is an InternalError that
  /// names the operator. Finds operators that do not repeat, and writes that nothing else shows (docs/exactness.md).
  /// Costs a read of each dropped value. Default: off.
  bool verify = false;
  /// Where memory runs short, holds values that have two different elements as bits (dropout masks, comparisons), and
  /// 64-bit indices in as few bytes as the largest takes, where that is cheaper than to recompute others. Without loss:
  /// every element is looked at. CPU only. Default: on.
  bool pack = true;
  /// "online": which values to evict is decided when memory runs short. Any other name (list_planners() has them): the
  /// first step runs as under "online", later ones follow a plan made from it. A step with the same operators and other
  /// sizes follows the fastest known plan that fits it; behind operators that were left out or added the plan is taken
  /// up again. A step unlike all before, or without a plan within the budget, runs as under "online".
  std::string planner = "auto";
  /// What messages call the session: "remat.wrap(GPT2)". Default: none.
  std::string name = {};
  /// Followed, in place of one of `planner`'s, in every step that has the graph it was made for (from the second such
  /// step on: the first is recorded) wherever its predicted peak is within the step's budget. Default: none.
  std::optional<Plan> plan = {};
  /// Processes that train one model together (data parallel, sharded, tensor parallel) and run the same collectives in
  /// the same order in their steps. Where one of them is refused memory, BudgetError is thrown on all, before the next
  /// collective of c10d on this device (or as the step begins or ends), so that none waits for one that does not come,
  /// and training can go on with a larger budget or less work. The same for one whose step ends without completing
  /// (Error). Where all have recorded the same graph they follow one plan, made for the least room and the longest
  /// times of all. Steps begin and end on all ranks: end each by Step::end(), which throws if another rank's has
  /// failed. Default: the session is for itself, and one that is refused leaves the others waiting.
  std::optional<Ranks> ranks = {};
  /// A directory that steps may move values to while they compute, and bring back, where a plan of "auto" finds that
  /// faster than to recompute them. As the session is made, a file is made there, and some 140 MiB are written and read
  /// to measure it; the file has no name, and is gone when the session is, or the process. Each value has a checksum,
  /// compared when it comes back: what differs, or cannot be written or read, is recomputed, and the session warns of
  /// it (TORCH_WARN). Steps without a plan move what would take longer to recompute, when memory runs short. CPU only:
  /// Error on other devices. Default: none.
  std::optional<Disk> disk = {};
  /// Bytes of pinned host memory that values of a device with streams may be moved to, while the step computes: for
  /// devices what `disk` is for the CPU. Making the session measures the copies with some 40 MiB. Throws Error for the
  /// CPU, and for anything but a number of bytes.
  std::optional<Budget> host = {};
};

/// One forward and backward pass (or one micro-batch) of the calling thread. Ends when it goes out of scope.
///
/// Graphs made inside may outlive the step: a later backward still recomputes the values that it needs, outside the
/// budget.
class Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) = delete;
  /// Ends the step, as end(); never throws.
  ~Step();

  /// Ends the step now and returns its report. A second call returns the same report. `completed`: false for a step
  /// that failed in a way that cannot be seen here; leaving its scope by an exception can. Throws Error where another
  /// library has taken the place of remat's allocator meanwhile: then the budget did not hold. With
  /// SessionOptions::ranks, throws as said there.
  const StepReport& end(bool completed = true);

  /// By end(), by what remat/extension.h is told of it, or because this is a child of the process that began it: there
  /// it is no step.
  bool has_ended() const;

  /// Values saved in this step that autograd may still ask for: none once backward has freed the graph.
  int64_t live_values() const;

 private:
  friend class Session;
  friend class extension::CalledStep;
  struct Impl;
  Impl& impl() const;
  explicit Step(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Keeps the steps of a training loop under a budget.
///
/// A session is used by one thread at a time, and a step should end on the thread where it began: ended by another, it
/// goes on being recorded until its own thread's next operator. Sessions and steps that were moved from throw Error.
/// Several sessions may live at once, each with its own steps. All that is alive counts for each, and the smallest
/// budget among the steps in progress holds for all: give them one Pool (remat/pool.h). A percentage is of what all
/// threads had alive while the step ran: percentages are for steps that run one at a time. Moving or destroying a
/// session with a step in progress ends that step's budget but leaves its graphs usable. After a fork parent and child
/// each go on with a session of their own: steps in progress are the parent's.
class Session {
 public:
  /// Throws Error if the device is not supported or the budget cannot hold.
  explicit Session(SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Begins a step on this thread. In a Pool it waits until the step fits beside those in progress. Throws BudgetError
  /// if the bytes alive already pass the budget, Error if a step of this thread or of this session is in progress.
  [[nodiscard]] Step step();

  /// Gives the steps from the next one on another budget. Between steps, from any thread: Error while a step of this
  /// session is in progress. Nothing is recorded anew: plans are searched for in the graphs that are known. Throws
  /// BudgetError where a step like that of graph() is predicted not to do with it, with the smallest number that works
  /// (needed_bytes()), and Error for a budget that cannot hold on this device; the budget before stays in force then.
  /// Before a step was recorded, that is found by the next step. A share is of the largest step so far. With
  /// SessionOptions::ranks it is called on all ranks, between the same steps; where one is refused, all are, and all
  /// keep their budgets.
  void set_budget(Budget budget);

  /// The report of the last step that ended. Throws Error before the first.
  const StepReport& report() const;

  /// The graph of the step written down last, with the medians of the times seen: the session's first steps are, and
  /// others after one that was like none of those known. Throws Error before a step has completed, and
  /// with the planner "online" (and no plan given).
  Graph graph() const;

  /// The module that each operator of graph() belongs to, "blocks.3.attention": for Run::layers. The modules are known
  /// by `parameters`: give `model->named_parameters().pairs()`. An operator that reads a module's parameter belongs to
  /// that module; one that reads none, to the module around the last whose parameter was read; those behind the last
  /// are in none, which is an empty name. A parameter that two modules share counts as the first one's. Throws Error
  /// where graph() does.
  std::vector<std::string> layers(const std::vector<std::pair<std::string, at::Tensor>>& parameters) const;

  /// The plan of the last completed step that followed one to its end, operator by operator. Of a step that had other
  /// sizes than those written down its graph is a prediction, and so is the plan's fingerprint. Throws Error if there
  /// was none.
  Plan plan() const;
  /// Writes plan() to a file, as JSON; plan_from_json() reads it. What was at `path` before stays if that fails; a link
  /// stays, and its target is replaced. Throws Error, also for a device or a pipe.
  void save_plan(const std::string& path) const;

  /// The smallest budget in bytes for a session like this one, as predicted for a step like that of graph() which began
  /// now: that a first step can do with, which has no plan yet, and later ones that have none for so little. What is
  /// alive now counts, such as a result that is kept: ask after the first update of an optimizer, and its state is in
  /// the number. Gradients alone are taken to be there or not as when the last step began.
  /// What such a step drops depends on the times that it measures: on a busy machine it may need up to an eighth of its
  /// activations more.
  /// Without a graph, what the smallest step that completed took, if any did. Computed anew at each call: up to some
  /// tenths of a second.
  std::optional<int64_t> min_budget_bytes() const;

  /// The budget in bytes that the next step will have, which the device's limit may make smaller; nothing while a
  /// percent budget waits for its first step.
  std::optional<int64_t> budget_bytes() const;

 private:
  friend class Step;
  struct Impl;
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace remat
