#include "fuzz/run.h"

#include <algorithm>
#include <utility>

#include "fuzz/check.h"

namespace remat::fuzz {

Run run_step(const Program& program, const std::vector<ParameterSpec>& parameters, const Setting& setting,
             std::optional<Session>& session) {
  Run result;
  const c10::Device device = program.device;
  const int64_t before = memory::current(device);
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> empty;
  {
    Machine machine(program, parameters);
    machine.with_remat = !setting.plain;
    std::optional<Step> step;
    result.baseline = memory::current(device);
    if (setting.session && !session) {
      session.emplace(
          SessionOptions{.budget = setting.budget ? Budget::bytes(result.baseline + *setting.budget) : Budget(),
                         .device = device,
                         .verify = setting.verify,
                         .planner = setting.planner});
    }
    memory::reset_peak(device);
    try {
      if (session) step.emplace(session->step());
      machine.run(setting.scopes);
      if (step) result.report = step->end();
      result.peak = memory::peak(device);
      if (result.report) result.baseline = result.report->baseline_bytes;  // with what the step met and adopted
      // A graph that is not sound is left out, and only other threads may make one: throws where there is none.
      const bool alone = program.kind != Kind::kThreads && setting.planner != "online";
      if (alone && result.report && result.report->completed) session->graph();
      result.trace = machine.finish();
    } catch (const BudgetError& e) {
      result.peak = memory::peak(device);
      if (step) result.baseline = step->end(/*completed=*/false).baseline_bytes;
      result.lower_bound = e.lower_bound_bytes() - result.baseline;
    }
    result.trace.failed_later = machine.settle();
    result.listing = machine.listing();
    result.parameters = machine.parameters();
    empty = std::move(machine.empty);
  }
  result.leaked_empty = std::ranges::any_of(empty, [](const auto& tensor) { return !tensor.expired(); });
  result.leaked = memory::current(device) - before;
  return result;
}

namespace {

Run run_once(const Program& program, const std::vector<ParameterSpec>& parameters, const Setting& setting) {
  announce(program, setting.name.c_str());
  std::optional<Session> session;
  for (int step = 1; step < setting.steps; ++step) run_step(program, parameters, setting, session);
  return run_step(program, parameters, setting, session);
}

}  // namespace

Run run(const Program& program, const std::vector<ParameterSpec>& parameters, const Setting& setting) {
  Run result = run_once(program, parameters, setting);
  return result.leaked == 0 ? result : run_once(program, parameters, setting);
}

}  // namespace remat::fuzz
