#include "cli/recording.h"

#include <utility>

#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "cli/head_loss.h"
#include "zoo/task.h"

namespace remat::cli {

std::vector<RecordableModel> recordable_models() {
  std::vector<RecordableModel> models;
  for (const auto& task : zoo::list_tasks()) {
    models.push_back({std::string(task.name), task.batch, std::string(task.description), task.ends_in_head});
  }
  return models;
}

Recording record_steps(const RecordSettings& settings) {
  memory::start_accounting();  // before the first tensor: parameters count
  const auto task = zoo::make_task(settings.model, settings.batch);
  for (auto& parameter : task.model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  HeadLoss loss(settings.head);
  Session session({.budget = Budget::parse(settings.budget)});
  for (int64_t i = 0; i < settings.steps; ++i) {
    task.model->zero_grad(/*set_to_none=*/false);
    auto step = session.step();
    loss(task).backward();
    step.end();
  }
  Run run;
  run.name = settings.model;
  run.graph = session.graph();
  run.layers = session.layers(task.model->named_parameters().pairs());
  return {std::move(run), task.input.size(0), session.report().values_saved};
}

}  // namespace remat::cli
