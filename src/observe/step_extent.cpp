#include "observe/step_extent.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "pytorch/autograd_engine.h"
#include "pytorch/tensors_of.h"

namespace remat {
namespace {

/// Backward passes of others in a step: what they record is held until it ends.
constexpr int kMostOthers = 32;

}  // namespace

class History {
 public:
  std::vector<decltype(torch::autograd::Edge::function)> nodes;
};

std::shared_ptr<const History> history_of(c10::ArrayRef<const c10::IValue> inputs) {
  if (!c10::GradMode::is_enabled()) return nullptr;
  auto history = std::make_shared<History>();
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.requires_grad() && !tensor.is_leaf()) history->nodes.push_back(tensor.grad_fn());
  };
  for (const c10::IValue& input : inputs) for_each_tensor(input, add);
  return history->nodes.empty() ? nullptr : history;
}

StepExtent::StepExtent(std::function<void(bool completed)> end, std::function<bool()> is_released)
    : end_(std::move(end)), is_released_(std::move(is_released)), thread_(at::RecordFunction::currentThreadId()) {}

void StepExtent::enter_forward(std::function<bool()> goes_on) {
  goes_on_ = std::move(goes_on);
  const uint64_t next = at::sequence_number::peek();
  {
    const MutexLock lock(mutex_);
    calls_.emplace_back(next, UINT64_MAX);
  }
  others_ = 0;
  in_forward_ = true;
  delimited_by_calls_ = true;
}

void StepExtent::leave_forward() {
  if (!in_forward_) return;
  {
    const MutexLock lock(mutex_);
    calls_.back().second = at::sequence_number::peek();
  }
  if (!is_released_()) saves_ = true;
  in_forward_ = false;
  goes_on_ = nullptr;  // it may hold what ends before this step's last reference
}

/// An interrupt leaves a forward call without a word.
bool StepExtent::is_forward_going_on(const Activity& activity) {
  if (at::RecordFunction::currentThreadId() != thread_ || !goes_on_) return true;
  if (!activity.records) return true;  // remat's own doings, maybe with a lock
  if (torch::autograd::get_current_graph_task_id() != -1 || goes_on_()) return true;
  leave_forward();
  return false;
}

bool StepExtent::contains(uint64_t thread, uint64_t sequence_number) const {
  if (thread != thread_) return false;
  const MutexLock lock(mutex_);
  for (const auto& [begin, end] : calls_) {
    if (sequence_number >= begin && sequence_number < end) return true;
  }
  return false;
}

bool StepExtent::reaches(const History& history) const {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> pending;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) pending.push_back(node);
  };
  for (const auto& node : history.nodes) visit(node.get());
  while (!pending.empty()) {
    const torch::autograd::Node* const node = pending.back();
    pending.pop_back();
    if (contains(node->thread_id(), node->sequence_nr())) return true;
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return false;
}

bool StepExtent::covers_backward(int task) {
  // The task and the answer in one number, for threads that ask at once.
  if (const int64_t known = known_.load(); known >= 0 && known / 2 == task) return known % 2 == 1;
  bool found = false;
  // The roots of the backward pass hold these nodes.
  if (const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph(); nodes != nullptr) {
    for (const torch::autograd::Node* const node : *nodes) {
      found = found || contains(node->thread_id(), node->sequence_nr());
    }
  }
  known_ = int64_t{task} * 2 + (found ? 1 : 0);
  return found;
}

bool StepExtent::covers(const Activity& activity) {
  if (!is_between_calls() && is_forward_going_on(activity)) return true;
  if (backwards_ > 0) return true;
  if (!activity.watched && at::RecordFunction::currentThreadId() != thread_) return false;
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != -1) {
    if (!covers_backward(task)) return false;
    watch(task);  // what is refused may be the first operator of the backward pass
    return true;
  }
  return std::ranges::any_of(activity.histories, [this](const auto& history) { return reaches(*history); });
}

void StepExtent::end_if_released() {
  // Where the calls have saved nothing, that nothing is left does not show that their results are gone.
  if (!saves_ || !is_between_calls() || backwards_ > 0 || !is_released_()) return;
  end_(passes_ > 0);
}

void StepExtent::on_unpack() {
  if (!is_between_calls()) return;
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return;
  if (covers_backward(task)) {
    watch(task);
  } else if (other_.exchange(task) != task && ++others_ > kMostOthers) {
    after_backward([](StepExtent& extent, bool) { extent.end_unless_in_backward(); });
  }
}

void StepExtent::end_unless_in_backward() {
  if (torch::autograd::get_current_graph_task_id() == -1) end_(/*completed=*/false);
}

/// In a backward pass: calls `done` when its graph task is gone, whatever became of it.
void StepExtent::after_backward(void (*done)(StepExtent& extent, bool completed)) {
  const std::shared_ptr<bool> completed(new bool(false), [extent = shared_from_this(), done](const bool* flag) {
    done(*extent, *flag);
    delete flag;
  });
  on_end_of_backward([completed] { *completed = true; });
}

/// Inside of the backward pass `task`, which belongs to the step: ends the step if the pass fails.
void StepExtent::watch(int task) {
  if (watched_.exchange(task) == task) return;
  ++backwards_;
  after_backward([](StepExtent& extent, bool completed) {
    --extent.backwards_;
    if (!completed) return extent.end_unless_in_backward();
    ++extent.passes_;
    extent.end_if_released();
  });
}

}  // namespace remat
