// cli/training_state.h -- what the next step depends on beside settings and data: parameters, the optimizer's state,
// the default generator, the number of steps. Of a model that is frozen in part the trained parameters alone, and 64
// bits that stand for the others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize
namespace remat::zoo {
class Model;
}

namespace remat::cli {

class CheckpointReader;

using WriteBytes = std::function<void(const void* data, size_t size)>;
/// Copies `size` bytes from `offset` on and returns how many there were.
using ReadBytes = std::function<size_t(size_t offset, void* data, size_t size)>;

/// What one process has saved.
struct StatePart {
  ReadBytes read;
  size_t size = 0;
};

/// All that a checkpoint holds; `file` must outlive it.
StatePart payload_of(const CheckpointReader& file);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The parameters that are not frozen.
NamedTensors trained_parameters(const zoo::Model& model);

/// Throws Error, with their names, where parameters that the checkpoint at `path` gave have NaN or infinite elements.
void check_finite(const NamedTensors& parameters, const std::string& path);

void save_state(const zoo::Model& model, const torch::optim::Optimizer& optimizer, int64_t steps_done,
                const WriteBytes& write);

/// Restores what save_state() wrote of an equal model and optimizer; returns the number of steps. Throws Error where
/// the model's frozen parameters are not those that the others were trained beside; nothing has changed then.
int64_t load_state(zoo::Model& model, torch::optim::Optimizer& optimizer, const StatePart& part);

/// The same where a process has no whole model: `changing`, by name, are the tensors that it has of it and trains, or
/// that forward passes change, and `frozen` the others.
void save_tensors_state(const NamedTensors& changing, const NamedTensors& frozen,
                        const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write);
int64_t load_tensors_state(const NamedTensors& changing, const NamedTensors& frozen, torch::optim::Optimizer& optimizer,
                           const StatePart& part);

/// What `write_own` and `read_own` say, in the place of a model.
void save_archive(const std::function<void(torch::serialize::OutputArchive&)>& write_own,
                  const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write);
int64_t load_archive(const std::function<void(torch::serialize::InputArchive&)>& read_own,
                     torch::optim::Optimizer& optimizer, const StatePart& part);

at::Generator default_generator();
/// That alone.
void save_generator(const WriteBytes& write);
void load_generator(const StatePart& part);

}  // namespace remat::cli
