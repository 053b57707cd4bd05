#include "cli/measuring.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "zoo/task.h"

namespace remat::cli {
namespace {

constexpr int kRecordedSteps = 4;  ///< of whose times the medians are taken

zoo::Task task_of(const SweepSettings& settings, int64_t depth) {
  memory::start_accounting();  // before the first tensor: parameters count
  zoo::Task task = zoo::make_task(settings.model, {.batch = settings.batch,
                                                   .length = settings.length,
                                                   .depth = depth > 0 ? depth : settings.depth,
                                                   .width = settings.width});
  for (auto& parameter : task.model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  return task;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace

struct SweptModel::Impl {
  zoo::Task task;
  Graph graph = {};

  void pass() const {
    task.model->zero_grad(/*set_to_none=*/false);
    task.loss().backward();
  }

  /// Seconds of a step; under `session` if there is one.
  double step(Session* session) const {
    const auto begin = std::chrono::steady_clock::now();
    if (session == nullptr) {
      pass();
    } else {
      auto step = session->step();
      pass();
      step.end();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

SweptModel::SweptModel(const SweepSettings& settings, int64_t depth)
    : impl_(std::make_unique<Impl>(Impl{task_of(settings, depth)})) {
  Session session({.name = "remat sweep"});
  for (int i = 0; i < kRecordedSteps; ++i) impl_->step(&session);
  impl_->graph = session.graph();
}
SweptModel::~SweptModel() = default;

const Graph& SweptModel::graph() const { return impl_->graph; }
int64_t SweptModel::batch() const { return impl_->task.input.size(0); }

Measurement SweptModel::measure(const Plan& plan, int64_t rounds) {
  Session session({.planner = "online", .name = "remat sweep", .plan = plan});
  for (int i = 0; i < 2; ++i) impl_->step(&session);  // the first is written down, to know the step by
  Measurement measured{.rounds = rounds};
  std::vector<double> seconds, plain_seconds, ratios;
  for (int64_t round = 0; round < rounds; ++round) {
    memory::reset_peak();
    plain_seconds.push_back(impl_->step(nullptr));
    measured.plain_peak_bytes = std::max(measured.plain_peak_bytes, memory::peak());
    seconds.push_back(impl_->step(&session));
    const StepReport& report = session.report();
    measured.peak_bytes = std::max(measured.peak_bytes, report.peak_bytes);
    if (report.decided_by != "plan given") measured.not_followed = report.decision_reason;
    ratios.push_back(seconds.back() / plain_seconds.back());
  }
  measured.seconds = median(std::move(seconds));
  measured.plain_seconds = median(std::move(plain_seconds));
  measured.times_plain = median(std::move(ratios));
  return measured;
}

Surroundings surroundings() { return {TORCH_VERSION, "cpu", at::get_num_threads()}; }

}  // namespace remat::cli
