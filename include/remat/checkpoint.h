// remat/checkpoint.h -- the interface people know from torch.utils.checkpoint, without the second call.
//
//   auto y = remat::checkpoint([&](at::Tensor x) { return block->forward(x); }, x);
//
// The function runs once. Values that autograd saves inside it are dropped and brought back in backward by replaying
// the recorded operators, so its side effects, random numbers and control flow cannot happen twice or differently. What
// other threads make meanwhile is not concerned.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <remat/error.h>
#include <remat/policy.h>

namespace remat {

/// Calls `fn(inputs...)` under `policy` and returns what it returns: a tensor, a tuple, a vector, a struct, nothing.
/// Inputs and results may be of any type. Exceptions of `fn` pass through. Nests.
template <class Fn, class... Inputs>
decltype(auto) checkpoint_with(const Policy& policy, Fn&& fn, Inputs&&... inputs) {
  PolicyScope scope(policy);
  return std::invoke(std::forward<Fn>(fn), std::forward<Inputs>(inputs)...);
}

/// checkpoint_with() under Policy::drop_all().
template <class Fn, class... Inputs>
decltype(auto) checkpoint(Fn&& fn, Inputs&&... inputs) {
  return checkpoint_with(Policy::drop_all(), std::forward<Fn>(fn), std::forward<Inputs>(inputs)...);
}

/// Runs the modules of a torch::nn::Sequential in `segments` checkpointed runs of equal length (Chen et al. 2016,
/// arXiv 1604.06174, section 4: about the square root of the number of modules uses least memory).
///
/// `sequential`: a torch::nn::Sequential, or anything with `->size()` and a range of modules that have
/// `forward<at::Tensor>(x)`. Throws Error unless 1 <= segments <= the number of modules.
template <class Sequential>
at::Tensor checkpoint_sequential(Sequential& sequential, int64_t segments, at::Tensor x) {
  const auto modules = static_cast<int64_t>(sequential->size());
  if (segments < 1 || segments > modules) {
    throw Error("[checkpoint_sequential] segments is " + std::to_string(segments) + ", modules are " +
                std::to_string(modules) + "; use 1 to the number of modules");
  }
  auto next = sequential->begin();
  for (int64_t segment = 0; segment < segments; ++segment) {
    const int64_t length = modules * (segment + 1) / segments - modules * segment / segments;
    PolicyScope scope(Policy::drop_all());
    for (int64_t i = 0; i < length; ++i, ++next) x = next->template forward<at::Tensor>(std::move(x));
  }
  return x;
}

}  // namespace remat
