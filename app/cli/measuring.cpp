#include "cli/measuring.h"

#include <algorithm>
#include <chrono>

#include <ATen/Parallel.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <remat/memory.h>
#include <remat/rounds.h>
#include <remat/session.h>

#include "cli/device.h"
#include "cli/head_loss.h"
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

}  // namespace

struct SweptModel::Impl {
  zoo::Task task;
  HeadLoss loss;
  std::optional<Disk> disk;
  Graph graph = {};

  void pass() {
    task.model->zero_grad(/*set_to_none=*/false);
    loss(task).backward();
  }

  /// Seconds of a step; under `session` if there is one.
  double step(Session* session) {
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
    : impl_(std::make_unique<Impl>(Impl{task_of(settings, depth), HeadLoss(settings.head), disk_of(settings.disk)})) {
  Session session({.name = "remat sweep", .disk = impl_->disk});
  for (int i = 0; i < kRecordedSteps; ++i) impl_->step(&session);
  impl_->graph = session.graph();
}
SweptModel::~SweptModel() = default;

const Graph& SweptModel::graph() const { return impl_->graph; }
int64_t SweptModel::batch() const { return impl_->task.input.size(0); }

Measurement SweptModel::measure(const Plan& plan, int64_t rounds) {
  Session session({.planner = "online", .name = "remat sweep", .plan = plan, .disk = impl_->disk});
  for (int i = 0; i < 2; ++i) impl_->step(&session);  // the first is written down, to know the step by
  Measurement measured{.rounds = rounds};
  RoundTimes times, plain_times;
  for (int64_t round = 0; round < rounds; ++round) {
    memory::reset_peak();
    plain_times.add_round(time_round([&] { return impl_->step(nullptr); }));
    measured.plain_peak_bytes = std::max(measured.plain_peak_bytes, memory::peak());
    times.add_round(time_round([&] {
      const double seconds = impl_->step(&session);
      const StepReport& report = session.report();
      measured.peak_bytes = std::max(measured.peak_bytes, report.peak_bytes);
      if (report.decided_by != "plan given") measured.not_followed = report.decision_reason;
      return seconds;
    }));
  }
  measured.seconds = times.least();
  measured.plain_seconds = plain_times.least();
  measured.times_plain = ratio_of(times, plain_times);
  return measured;
}

Surroundings surroundings() {
  return {TORCH_VERSION, c10::DeviceTypeName(kDevice, /*lower_case=*/true), at::get_num_threads()};
}

}  // namespace remat::cli
