#include "pytorch/autograd_engine.h"

#include <cstddef>
#include <mutex>
#include <type_traits>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

namespace remat {
namespace {

using torch::autograd::Engine;

/// Counts a node's owners: std::shared_ptr in older versions of torch, c10::intrusive_ptr in newer ones.
using NodePtr = decltype(torch::autograd::Edge::function);

/// A graph of one node that does nothing.
struct Nothing final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*inputs*/) override { return {}; }
};

template <class Pointer = NodePtr>
Pointer make_nothing() {
  if constexpr (std::is_constructible_v<Pointer, Nothing*>) {
    return Pointer(new Nothing);
  } else {
    return c10::make_intrusive<Nothing>();
  }
}

/// An error in backward leaves its tasks, and the gradients that they carry, in the thread's queue until the thread's
/// next backward call, which throws them out before it does anything else. This is one.
void release_abandoned_gradients(Engine& engine) noexcept {
  try {
    float zero = 0;
    const at::Tensor gradient = at::from_blob(&zero, {});
    const NodePtr nothing = make_nothing();
    nothing->add_input_metadata(gradient);
    engine.execute({{nothing, 0}}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true,
                   {});
  } catch (...) {  // then they stay a while longer
  }
}

/// Default saved-tensor hooks reach autograd only through a virtual function of the default engine, so this is one. It
/// runs nothing itself: the engine that was there before does, whether PyTorch's or Python's.
class HookEngine final : public Engine {
 public:
  HookEngine(Engine& previous, AutogradHooks hooks) : previous_(previous), hooks_(hooks) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (auto theirs = previous_.get_default_saved_variable_hooks()) return theirs;  // the user's own hooks win
    return hooks_.make_saved_tensor();
  }

  Engine& previous() { return previous_; }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    const bool outermost = torch::autograd::get_current_graph_task_id() == -1;
    try {
      auto result = previous_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
      if (outermost) hooks_.left_backward();
      return result;
    } catch (...) {
      if (outermost) release_abandoned_gradients(previous_);
      if (outermost) hooks_.left_backward();
      throw;
    }
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task, NodePtr graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return previous_.execute_with_graph_task(graph_task, std::move(graph_root), std::move(input_buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return previous_.make_anomaly_metadata();
  }

 private:
  Engine& previous_;
  AutogradHooks hooks_;
};

HookEngine* g_engine = nullptr;
Engine& engine() { return *g_engine; }

/// The backward pass that this thread works for; null: none.
const torch::autograd::GraphTask* current_task() {
  // Autograd knows much of the pass, but hands out only this member of it.
  const auto* const exec_info = torch::autograd::get_current_graph_task_exec_info();
  if (exec_info == nullptr) return nullptr;
  using torch::autograd::GraphTask;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr size_t kOffset = offsetof(GraphTask, exec_info_);
#pragma GCC diagnostic pop
  return reinterpret_cast<const GraphTask*>(reinterpret_cast<const char*>(exec_info) - kOffset);
}

}  // namespace

void release_abandoned_gradients() noexcept {
  if (torch::autograd::get_current_graph_task_id() == -1) release_abandoned_gradients(g_engine->previous());
}

void on_end_of_backward(std::function<void()> callback) { g_engine->previous().queue_callback(std::move(callback)); }

bool in_nested_backward() {
  const auto* const task = current_task();
  return task != nullptr && task->reentrant_depth_ > 0;
}

bool in_backward_that_frees() {
  const auto* const task = current_task();
  return task != nullptr && !task->keep_graph_;
}

void install_autograd_engine(AutogradHooks hooks) {
  static std::once_flag once;
  std::call_once(once, [hooks] {
    // Lives as long as the process, like PyTorch's own.
    g_engine = new HookEngine(torch::autograd::Engine::get_default_engine(), hooks);
    torch::autograd::set_default_engine_stub(engine);
  });
}

}  // namespace remat
