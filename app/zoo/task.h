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

/// A length that a task can have.
struct TaskLength {
  int64_t usual = 0;  ///< 0: the task has none that could be another
  int64_t step = 1;   ///< others are multiples of it
};

struct TaskInfo {
  std::string_view name;
  int64_t batch = 0;  ///< the usual one, in examples
  std::string_view description;
  TaskLength length = {};  ///< of an example: tokens, or pixels on each side
  TaskLength depth = {};   ///< repeated blocks or layers
  TaskLength width = {};   ///< features or channels
  bool ends_in_head = false;  ///< whether Model::forward_to_head() gives one
};

/// 0: the usual one.
struct TaskSizes {
  int64_t batch = 0, length = 0, depth = 0, width = 0;
};

/// Every task there is, by name.
std::vector<TaskInfo> list_tasks();

/// A task of the list; `batch` 0: the usual one. Parameters and data are the same in every call: the default CPU
/// generator is seeded with 0 on the way. Throws remat::Error for a name that is not in the list.
Task make_task(std::string_view name, int64_t batch = 0);
/// Of other sizes. Throws remat::Error for one that the task does not have, and as its model does.
Task make_task(std::string_view name, const TaskSizes& sizes);

/// The same model, with the examples in turn until there are `batch`.
Task with_batch(const Task& task, int64_t batch);

/// Of another depth: "mlp" with so many blocks, or "cifar-resnet" with 6 n + 2 layers, on 32 x 32 pixels. Otherwise as
/// make_task(); `batch` 0: 2048 and 64.
Task make_deep_task(std::string_view name, int64_t layers, int64_t batch = 0);

}  // namespace remat::zoo
