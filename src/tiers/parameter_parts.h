// src/tiers/parameter_parts.h -- large parameters in parts, for updates that look at each element alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class OptimizerParamState;
}

namespace remat {

using Part = std::pair<int64_t, int64_t>;  ///< of a flat parameter: the first element, and the one after the last

/// One part that is all of it where the parameter is updated at once: 2,097,152 elements or fewer, not contiguous, or
/// neither float32 nor float64.
std::vector<Part> parts_of(const at::Tensor& parameter);
at::Tensor slice(const at::Tensor& flat, const Part& part);
/// Of the parameter, with that part of its gradient.
at::Tensor part_of(const at::Tensor& parameter, const Part& part);

/// All tensors of a parameter's state, some of them undefined: of SGD, Adam, AdamW, RMSprop and Adagrad.
std::vector<at::Tensor*> tensors_of(torch::optim::OptimizerParamState& state);

}  // namespace remat
