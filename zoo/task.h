// zoo/task.h -- a model, a batch and a loss: what tests and benchmarks train.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zoo/model.h"

namespace remat::zoo {

struct Task {
  std::string name;
  std::shared_ptr<Model> model;  ///< in training mode
  at::Tensor input;
  at::Tensor target;
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> criterion;

  /// One forward pass: the loss, ready for backward().
  at::Tensor loss() const { return criterion(model->forward(input), target); }
};

/// "gpt" (12 x 512, 256 tokens, vocabulary 8192, dropout 0.1), "mlp" (40 x 1024) or "resnet" (ResNet-50, 128 x 128
/// pixels). `batch` 0: the usual one (8, 2048, 16). Parameters and data are the same in every call: the default CPU
/// generator is seeded with 0 on the way. Throws remat::Error for a name that is none of these.
Task make_task(std::string_view name, int64_t batch = 0);

/// The names that make_task() knows.
std::vector<std::string> task_names();

}  // namespace remat::zoo
