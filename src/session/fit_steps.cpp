// Steps of sessions, as fit() asks for them.
#include <remat/fit_steps.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <remat/error.h>
#include <remat/memory.h>

#include "device/device.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

constexpr int kSteps = 2;  ///< under remat: without a plan, with one

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return seconds_since(begin);
}

class SessionSteps {
 public:
  SessionSteps(const MakeFitStep& make_step, SessionOptions options)
      : make_step_(make_step), options_(std::move(options)) {}

  FitTrial run(int64_t size, FitMode mode) {
    const FitStep step = make_step_(size);
    if (!step) {
      throw Error("[fit] make_step gave no step of size " + std::to_string(size) +
                  "; return a function that runs one forward and backward pass");
    }
    if (mode == FitMode::kRemat) return run_within(step, kSteps);  // its peak is the largest of several steps
    if (begins_anew_) {
      FitTrial first = first_step(step);
      if (!first.fits) return first;
    }
    return mode == FitMode::kPlain ? run_plain(step) : run_within(step, 1);
  }

 private:
  /// Makes gradients, an optimizer's state, and whatever else the first step leaves behind. Where `make_step` makes
  /// model and optimizer, every size has such a first step; else the first two tell that there are no more.
  FitTrial first_step(const FitStep& step) {
    const int64_t before = memory::current(options_.device);
    FitTrial trial = run_within(step, 1);
    ++runs_;
    begins_anew_ = runs_ < 2 || memory::current(options_.device) > before;
    return trial;
  }

  FitTrial run_plain(const FitStep& step) const {
    memory::reset_peak(options_.device);
    const double seconds = seconds_of(step) + seconds_to_finish();
    return {true, memory::peak(options_.device), seconds, {}};
  }

  /// Of the kernels on the device that have not ended.
  double seconds_to_finish() const {
    return seconds_of([&] { device::kind_of(options_.device).synchronize(options_.device); });
  }

  FitTrial run_within(const FitStep& run, int count) const {
    Session session(options_);
    FitTrial trial{.fits = true};
    try {
      for (int i = 0; i < count; ++i) {
        Step step = session.step();
        run();
        const StepReport& report = step.end();
        trial.peak_bytes = std::max(trial.peak_bytes, report.peak_bytes);
        trial.seconds = report.step_seconds - report.planning_seconds + seconds_to_finish();
      }
    } catch (const BudgetError& error) {
      return {false, error.needed_bytes(), 0, {}};
    }
    trial.graph = session.graph();
    return trial;
  }

  const MakeFitStep& make_step_;
  const SessionOptions options_;
  int runs_ = 0;
  bool begins_anew_ = true;
};

}  // namespace

Fit fit(FitOptions options, const MakeFitStep& make_step, SessionOptions session) {
  const device::Kind& kind = device::kind_of(session.device);
  if (!kind.has_contents()) {
    throw Error("[fit] steps on " + session.device.str() +
                " take no time and no memory; use the device that the model is to be trained on");
  }
  if (session.ranks) throw Error("[fit] sizes are tried in one process; leave SessionOptions::ranks out");
  if (!make_step) throw Error("[fit] there is no make_step; give a function of a size that returns a step");
  kind.start_accounting(session.device);
  if (options.budget_bytes == 0) options.budget_bytes = memory::limit(session.device);
  options.check();
  session.budget = Budget::bytes(options.budget_bytes);
  if (session.name.empty()) session.name = "remat::fit";
  SessionSteps steps(make_step, std::move(session));
  return fit(options, FitSteps([&](int64_t size, FitMode mode) { return steps.run(size, mode); }));
}

}  // namespace remat
