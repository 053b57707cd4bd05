#include "cli/recording.h"

#include <algorithm>
#include <chrono>

#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "zoo/task.h"

namespace remat::cli {
namespace {

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

std::vector<RecordableModel> recordable_models() {
  std::vector<RecordableModel> models;
  for (const auto& task : zoo::list_tasks()) {
    models.push_back({std::string(task.name), task.batch, std::string(task.description)});
  }
  return models;
}

std::optional<Recording> record_steps(const RecordSettings& settings, const std::function<bool()>& stop) {
  memory::start_accounting();  // before the first tensor: parameters count
  const auto task = zoo::make_task(settings.model, settings.batch);
  for (auto& parameter : task.model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  Session session({.budget = Budget::parse(settings.budget)});
  std::vector<double> seconds;
  for (int64_t i = 0; i < settings.steps; ++i) {
    if (stop()) return std::nullopt;
    task.model->zero_grad(/*set_to_none=*/false);
    auto step = session.step();  // plans, where there is a budget: no part of the step's time
    const auto begin = std::chrono::steady_clock::now();
    task.loss().backward();
    const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    seconds.push_back(whole - step.end().recompute_seconds);
  }
  Recording recording{session.graph(), task.input.size(0), session.report().values_saved};
  // As for the operators: the session's graph has the time of its last step, which may have been disturbed.
  recording.graph.step_seconds = median(std::move(seconds));
  return recording;
}

}  // namespace remat::cli
