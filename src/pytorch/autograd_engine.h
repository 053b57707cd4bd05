// src/pytorch/autograd_engine.h -- makes autograd ask remat how to save a tensor.
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace remat {

struct AutogradHooks {
  /// Makes what autograd holds in the place of a tensor that it is about to save; null: autograd saves it itself.
  std::unique_ptr<torch::autograd::SavedVariableHooks> (*make_saved_tensor)();
  /// A backward pass of this thread that was in no other one has ended, in whatever way.
  void (*left_backward)();
};

/// Puts remat's engine before PyTorch's (or Python's): it answers get_default_saved_variable_hooks() and delegates
/// everything else. Once per process; thread-safe; later calls do nothing.
void install_autograd_engine(AutogradHooks hooks);

/// An error in backward leaves the gradients that were on their way in the thread's queue. This frees them. Calls from
/// C++ do so by themselves; Python's own calls of backward do not come by. Outside of backward, without the
/// interpreter's lock.
void release_abandoned_gradients() noexcept;

/// Inside of a backward pass: `callback` is called when that has come to its end without an error. It is destroyed with
/// the last of the pass in any case.
void on_end_of_backward(std::function<void()> callback);

/// Does this thread run a backward pass that began inside of another one (torch.utils.checkpoint with use_reentrant, a
/// function or a hook that calls backward)?
bool in_nested_backward();
/// Does this thread run a backward pass that frees its graph (neither create_graph nor retain_graph)?
bool in_backward_that_frees();

}  // namespace remat
