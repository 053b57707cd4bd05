#include <remat/session.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <remat/memory.h>

#include <remat/support/replacement_file.h>
#include "device/device.h"
#include "observe/recorder.h"
#include "observe/step_extent.h"
#include "observe/variable_hooks.h"
#include "operators/special_operator.h"
#include "replay/saved_tensor.h"
#include "session/session_impl.h"

namespace remat {
namespace {

void check_kind(const Budget& budget, c10::Device device, bool has_ranks) {
  if (!device::kind_of(device).has_contents() && budget.kind() != Budget::Kind::kDeviceLimit) {
    throw Error("[session] a budget of " + budget.to_string() + " cannot be kept on the " + device.str() +
                " device, which has no memory; plan for it from graph()");
  }
  if (budget.kind() == Budget::Kind::kPool && (!device::is_host(device) || has_ranks)) {
    throw Error("[session] a pool is shared by sessions of one process on the CPU, and this one " +
                (has_ranks ? "has ranks, which would wait for each other" : "is for " + device.str()) +
                "; give bytes or a share");
  }
  if (budget.kind() != Budget::Kind::kPressure) return;
  if (!device::is_host(device)) {
    throw Error("[session] the budget \"pressure\" follows the host's memory, and this session's device is " +
                device.str() + "; give bytes or a share");
  }
  if (has_ranks) {  // on one machine, each would take what is left
    throw Error("[session] the budget \"pressure\" is for one process; with several ranks give bytes or a share");
  }
}

}  // namespace

Session::Session(SessionOptions options) {
  const device::Kind& kind = device::kind_of(options.device);
  check_kind(options.budget, options.device, options.ranks.has_value());
  if (options.disk && !device::is_host(options.device)) {
    throw Error("[session] values of the " + options.device.str() +
                " device cannot be moved to a disk; name none, or host memory (host)");
  }
  if (options.host && !device::has_streams(options.device)) {
    throw Error("[session] host memory is where tensors of the " + options.device.str() +
                " device are; name a disk to move values to, or nothing");
  }
  if (options.host && options.host->kind() != Budget::Kind::kBytes) {
    throw Error("[session] host memory is to be a number of bytes, as in 32GiB");
  }
  memory::start_accounting();
  kind.start_accounting(options.device);
  options.device = kind.indexed(options.device);
  if (!kind.is_tried()) {
    TORCH_WARN("[session] remat has kept budgets and bits on simulated devices, and run on no real one: on ",
               options.device.str(), " compare a few steps with plain ones, and measure their peaks (docs/devices.md)");
  }
  install_saved_tensors();
  install_variable_hooks();
  check_special_operators();
  impl_ = std::make_shared<Impl>(std::move(options));
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session::Impl& Session::impl() const {
  if (!impl_) throw Error("[session] this session was moved from; use the one that it was moved to");
  return *impl_;
}

Step Session::step() {
  if (impl().forks != forks()) impl_->after_fork();
  if (Recorder::current() != nullptr) {
    throw Error("[session] a step or policy scope of this thread is in progress; end it before the next step");
  }
  memory::start_accounting(impl_->options.device);  // throws where another allocator has taken the place of ours
  impl_->throw_failure();
  auto step = std::make_shared<Step::Impl>();
  step->tape->extent = std::make_shared<StepExtent>(
      [ours = std::weak_ptr(step)](bool completed) {
        const auto step_of_extent = ours.lock();
        if (step_of_extent == nullptr) return;
        step_of_extent->end(completed && !step_of_extent->session->eviction.refusal().has_value());
      },
      [ours = std::weak_ptr(step)] {
        const auto step_of_extent = ours.lock();
        return step_of_extent != nullptr && step_of_extent->live_values() == 0;
      });
  step->set_up(impl_);
  impl_->ask_pool(*step);
  auto& ledger = memory::Ledger::of(impl_->options.device);
  ledger.reset_if_alone();
  step->measured.emplace(ledger);
  impl_->follow_memory(step->report);
  const int64_t baseline = ledger.current();
  const int64_t expected = baseline + impl_->adopted_by(baseline);
  const int64_t limit = impl_->limit_for(expected);
  impl_->gradients_before = impl_->gradients_now();
  step->report.step = ++impl_->steps;
  step->report.baseline_bytes = baseline;
  step->report.budget_bytes = limit;
  impl_->begin_eviction(*step, limit, expected);
  bool traces = impl_->planner.wants_trace();
  const int64_t room = impl_->agree_on_room(baseline, limit, step->pool_room.value_or(limit - expected), traces);
  step->follow_plans(room, impl_->options.budget.share() >= 100 && limit < memory::limit(impl_->options.device));
  step->put_in_force(limit, room);
  if (traces) step->begin_trace();
  step->follower->notes_results = impl_->follows_plain() && impl_->planner.graph() == nullptr && step->trace == nullptr;
  Recorder::start(step->tape);
  return Step(std::move(step));
}

void Session::set_budget(Budget budget) {
  if (impl().forks != forks()) impl_->after_fork();
  check_kind(budget, impl_->options.device, impl_->ranks != nullptr);
  const Turn turn(impl_->in_step,
                  "[session] a step of this session is in progress; change its budget when it has ended");
  impl_->change_budget(budget);
}

const StepReport& Session::report() const {
  if (impl().report.step == 0) throw Error("[session] no step has ended yet; run one before asking for its report");
  return impl().report;
}

Graph Session::graph() const {
  if (impl().planner.graph() == nullptr) {
    const bool online = impl_->options.planner == "online";
    throw Error("[session] there is no graph: " +
                std::string(online ? "the planner \"online\" needs none, and none is written down; use another"
                            : impl_->steps == 0 ? "no step has begun yet; run one first"
                                                : "no step has completed yet; run one more"));
  }
  return *impl_->planner.graph();
}

Plan Session::plan() const {
  if (!impl().followed) {
    throw Error(
        "[session] no step has followed a plan to its end yet: the first is recorded, and where the budget has no plan "
        "or the planner is \"online\" there is none; run more steps, or give more");
  }
  return impl_->followed->plan;
}

void Session::save_plan(const std::string& path) const {
  namespace fs = std::filesystem;
  const std::string text = to_json(plan());
  const auto fail = [&](const std::string& why) {
    throw Error("[session] cannot write the plan to '" + path + "' (" + why + "); give another path");
  };
  if (path.find('\0') != std::string::npos) fail("there is a zero byte in it");
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("it is no regular file");
  if (!fs::exists(status) && fs::is_symlink(fs::symlink_status(path, error))) fail("it is a link to nothing");
  const auto target = fs::canonical(path, error);
  support::ReplacementFile file;
  if (!file.open(error ? path : target.string()) || !file.write(text.data(), text.size()) || !file.commit()) {
    fail(std::strerror(errno));
  }
}

std::optional<int64_t> Session::min_budget_bytes() const {
  const Graph* const graph = impl().planner.graph();
  if (graph == nullptr && !impl_->smallest_step) return std::nullopt;
  const int64_t baseline = impl_->in_step ? impl_->report.baseline_bytes : impl_->next_baseline();
  if (graph == nullptr) return baseline + impl_->smallest_step->activation_peak;
  // A first step has no plan, and where none fits, later ones do without.
  return impl_->least_without_plan(*graph) + std::max(baseline, graph->baseline_bytes);
}

std::optional<int64_t> Session::budget_bytes() const {
  const bool follows = impl().memory_followed && !impl_->in_step;
  const auto wanted = follows ? impl_->limit_by_memory() : impl_->wanted_for(memory::current(impl_->options.device));
  if (!wanted) return std::nullopt;
  return std::min(*wanted, memory::limit(impl_->options.device));
}

}  // namespace remat
