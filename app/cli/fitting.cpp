#include "cli/fitting.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <torch/torch.h>

#include <remat/error.h>
#include <remat/memory.h>
#include <remat/rounds.h>
#include <remat/session.h>
#include <remat/tile_trials.h>

#include "cli/head_loss.h"
#include "cli/wrong_usage.h"
#include "zoo/task.h"

namespace remat::cli {
namespace {

constexpr int64_t kMostTimes = 256;  ///< the usual size

zoo::TaskInfo info_of(const std::string& name) {
  const auto tasks = zoo::list_tasks();
  return *std::ranges::find(tasks, name, &zoo::TaskInfo::name);
}

struct Along {
  zoo::TaskLength length;  ///< what it can be
  int64_t given;           ///< 0: the usual
  int64_t zoo::TaskSizes::*size;
};

Along find_along(const FitSettings& settings, const std::string& name) {
  const zoo::TaskInfo info = info_of(settings.model);
  if (name == "batch") return {{info.batch}, settings.batch, &zoo::TaskSizes::batch};
  if (name == "length") return {info.length, settings.length, &zoo::TaskSizes::length};
  if (name == "depth") return {info.depth, settings.depth, &zoo::TaskSizes::depth};
  return {info.width, settings.width, &zoo::TaskSizes::width};
}

zoo::TaskSizes sizes_of(const FitSettings& settings) {
  return {.batch = settings.batch, .length = settings.length, .depth = settings.depth, .width = settings.width};
}

/// Gradients exist before the first step, as they do when micro-batches add up.
void make_gradients(const zoo::Task& task) {
  for (auto& parameter : task.model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
}

void step_of(const zoo::Task& task, const std::string& head) {
  task.model->zero_grad(/*set_to_none=*/false);
  HeadLoss loss(head);
  loss(task).backward();
}

}  // namespace

void check_sizes(const FitSettings& settings) {
  for (const char* name : {"batch", "length", "depth", "width"}) {
    const auto [length, given, size] = find_along(settings, name);
    if (length.usual == 0 && (given > 0 || settings.along == name)) {
      throw UsageError("[options] " + settings.model + " has no " + name + " that could be another; leave out " +
                       (given > 0 ? "--" + std::string(name) : "--along " + std::string(name)));
    }
    if (given % length.step != 0) {
      throw UsageError("[options] --" + std::string(name) + " " + std::to_string(given) + " is no multiple of " +
                       std::to_string(length.step) + ", as " + settings.model + "'s must be");
    }
  }
}

std::vector<int64_t> sizes_along(const FitSettings& settings) {
  const auto [length, given, size] = find_along(settings, settings.along);
  const int64_t usual = given > 0 ? given : length.usual;
  auto sizes = fit_sizes(1, settings.most > 0 ? settings.most : kMostTimes * usual, length.step);
  if (sizes.empty()) {
    throw UsageError("[options] --most " + std::to_string(settings.most) + " is less than " +
                     std::to_string(length.step) + ", the smallest " + settings.along + "; give more");
  }
  for (int64_t divisor = 1; divisor <= std::min(settings.effective, sizes.back()); ++divisor) {
    if (settings.effective % divisor == 0) sizes.push_back(divisor);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

struct ZooSteps::Impl {
  const FitSettings& settings;
  const int64_t budget_bytes;
  std::optional<zoo::Task> usual;  ///< whose model serves every batch

  zoo::Task task(int64_t size) {
    if (settings.along == "batch") {
      if (!usual) {
        usual = zoo::make_task(settings.model, sizes_of(settings));
        make_gradients(*usual);
      }
      return zoo::with_batch(*usual, size);
    }
    zoo::TaskSizes sizes = sizes_of(settings);
    sizes.*find_along(settings, settings.along).size = size;
    zoo::Task task = zoo::make_task(settings.model, sizes);
    make_gradients(task);
    return task;
  }
};

int64_t ZooSteps::budget_bytes(const FitSettings& settings) {
  memory::start_accounting();
  const auto budget = Budget::parse(settings.budget);
  if (budget.kind() == Budget::Kind::kBytes) return budget.byte_count();
  if (budget.kind() == Budget::Kind::kDeviceLimit) return memory::limit();
  Impl steps{settings, 0, std::nullopt};
  const auto [length, given, size] = find_along(settings, settings.along);
  const zoo::Task task = steps.task(given > 0 ? given : length.usual);
  const int64_t baseline = memory::current();
  memory::reset_peak();
  step_of(task, settings.head);
  return baseline + static_cast<int64_t>(static_cast<double>(memory::peak() - baseline) * budget.share() / 100);
}

ZooSteps::ZooSteps(const FitSettings& settings, int64_t budget_bytes)
    : impl_(std::make_unique<Impl>(Impl{settings, budget_bytes, std::nullopt})) {
  memory::start_accounting();
}
ZooSteps::~ZooSteps() = default;

FitTrial ZooSteps::run(int64_t size, FitMode mode) {
  const zoo::Task task = impl_->task(size);
  forget_tile_choices();  // a training of this size alone would make the trial, within its budget
  if (mode == FitMode::kPlain) {
    memory::reset_peak();
    if (impl_->settings.head != kHeadWhole) step_of(task, impl_->settings.head);
    auto seconds = time_round([&] {
      const auto begin = std::chrono::steady_clock::now();
      step_of(task, impl_->settings.head);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    return {true, memory::peak(), seconds.back(), {}, std::move(seconds)};
  }
  Session session({.budget = Budget::bytes(impl_->budget_bytes),
                   .name = "remat fit",
                   .disk = disk_of(impl_->settings.disk)});
  FitTrial trial{.fits = true};
  const auto run_step = [&] {
    auto step = session.step();
    step_of(task, impl_->settings.head);
    const StepReport& report = step.end();
    trial.peak_bytes = std::max(trial.peak_bytes, report.peak_bytes);
    return trial.seconds = report.step_seconds - report.planning_seconds;
  };
  try {
    run_step();  // without a plan
    if (mode == FitMode::kRemat) trial.step_seconds = time_round(run_step);
  } catch (const BudgetError& error) {
    return {false, error.needed_bytes(), 0, {}};
  }
  trial.graph = session.graph();
  return trial;
}

}  // namespace remat::cli
