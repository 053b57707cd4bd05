#include <remat/export.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/plan.h>
#include <remat/planner.h>

#include <remat/support/number_text.h>
#include "export/costs.h"
#include "export/runtime_sources.h"
#include "export/step_graph.h"
#include "export/write_c.h"

namespace remat::exporting {
namespace {

constexpr int64_t kFixedBytes = 4 + 8 + 36;  // the loss, the counter, the rule
// Shares of the RAM, in percent, that are planned for: a plan for less is sometimes faster, and its addresses fit.
constexpr int kShares[] = {100, 98, 96, 93, 90, 86};
constexpr int kMostRounds = 12;  // of plans that are made again since addresses, or late reads, stood against one

/// A plan with all that follows from it.
struct Candidate {
  StepFlow flow;
  StepGraph graph;
  Plan plan;
  Schedule schedule;
  Placement placement;
  int64_t bytes = 0;  ///< of RAM, without the stack
};

using CandidatePtr = std::unique_ptr<Candidate>;

class Exporter {
 public:
  Exporter(std::string_view text, const ExportOptions& options)
      : step_(step_from_json(text)), options_(options), places_(step_) {
    check_options();
    optimizer_bytes_ = 4 * states_of(options.optimizer) * places_.parameters;
    limit_ = options.ram_bytes - options.stack_bytes;
    prediction_ = schedule_of_prediction(step_);
    prediction_places_ = place(prediction_);
  }

  ExportedStep run() {
    CandidatePtr kept = keep_all();
    const int64_t kept_bytes = kept->bytes;
    CandidatePtr best;
    if (kept_bytes <= limit_) {
      best = std::move(kept);
    } else {
      best = best_within_limit();
    }
    if (!best) refuse_ram(kept_bytes);
    return write(*best, kept_bytes);
  }

 private:
  void check_options() const {
    const auto refuse = [](const std::string& what) { throw Error("[export] " + what); };
    if (states_of(options_.optimizer) == 0 && options_.optimizer != "sgd")
      refuse("the optimizer \"" + options_.optimizer + "\" is none of sgd, momentum, adam");
    // Files and targets of a folder have other names than these; remat's own symbols begin with remat_.
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", digits = "0123456789_";
    constexpr std::string_view taken[] = {"example", "remat",   "stdint", "stdio",         "all",
                                          "test",    "install", "clean",  "remat_kernels", "help"};
    const std::string& name = options_.name;
    const auto fits = [&](char c) { return letters.find(c) != letters.npos || digits.find(c) != digits.npos; };
    if (name.empty() || letters.find(name[0]) == letters.npos || !std::ranges::all_of(name, fits) ||
        std::ranges::find(taken, name) != std::end(taken))
      refuse("the name \"" + name + "\" is none for files and functions in C; give letters, digits and _, as in motor");
    if (options_.ram_bytes < 1 || options_.stack_bytes < 0 || options_.stack_bytes >= options_.ram_bytes)
      refuse("of " + std::to_string(options_.ram_bytes) + " bytes of RAM " + std::to_string(options_.stack_bytes) +
             " are the stack's; give more RAM, or a smaller stack");
    const std::pair<const char*, double> numbers[] = {{"momentum", options_.momentum},
                                                      {"beta1", options_.beta1},
                                                      {"beta2", options_.beta2},
                                                      {"epsilon", options_.epsilon},
                                                      {"weight decay", options_.weight_decay}};
    for (const auto& [what, number] : numbers) {
      if (!(number >= 0 && number <= std::numeric_limits<float>::max()))
        refuse("the " + std::string(what) + " is " + support::short_text(number) + "; give a number from 0 on");
    }
    if (step_.gradients.empty()) refuse("the step trains no parameter");
  }

  int64_t arena_of(const Placement& placement) const { return std::max(placement.bytes, prediction_places_.bytes); }

  CandidatePtr keep_all() const {
    StepFlow flow(step_);
    StepGraph graph = graph_of(flow, kFixedBytes + optimizer_bytes_, options_.optimizer);
    Plan plan;
    plan.planner = "keep-all";
    plan.graph_fingerprint = graph.graph.fingerprint();
    plan.actions.assign(graph.graph.values.size(), Action::kKeep);
    const Prediction prediction = predict(graph.graph, plan.actions);
    plan.predicted_peak_bytes = plan.budget_bytes = prediction.peak_bytes;
    Schedule schedule = schedule_of(flow, graph, plan.actions);
    Placement placement = place(schedule);
    const int64_t bytes = graph.graph.baseline_bytes + arena_of(placement);
    return std::make_unique<Candidate>(Candidate{std::move(flow), std::move(graph), std::move(plan),
                                                 std::move(schedule), std::move(placement), bytes});
  }

  /// `any`: the first that is found, to know that there is one.
  CandidatePtr best_within_limit(bool any = false) {
    CandidatePtr best;
    for (const int share : kShares) {
      if (any && best) break;
      CandidatePtr found = plan_within(limit_ * share / 100, share == 100);
      if (found && (!best || found->plan.predicted_seconds < best->plan.predicted_seconds)) best = std::move(found);
    }
    return best;
  }

  /// The least bytes that were tried and do, without the stack's: planners know what is alive, and not what addresses
  /// leave free.
  int64_t smallest_that_works(int64_t from, int64_t kept_bytes) {
    limit_ = from;
    while (limit_ < kept_bytes) {
      nearest_ = kept_bytes;
      smallest_.reset();
      if (best_within_limit(true)) break;
      const int64_t further = limit_ + limit_ / 256 + 4;
      limit_ = nearest_ > limit_ ? std::min(nearest_, further) : further;
    }
    return std::min(limit_, kept_bytes);
  }

  /// A plan for at most `budget` bytes whose addresses fit `limit_`. `strict`: try ever smaller budgets.
  CandidatePtr plan_within(int64_t budget, bool strict) {
    StepFlow flow(step_);
    for (int round = 0; round < kMostRounds; ++round) {
      StepGraph graph = graph_of(flow, kFixedBytes + optimizer_bytes_, options_.optimizer);
      Plan plan;
      try {
        plan = make_plan(graph.graph, budget, options_.planner, {.pack = false, .refine = true});
      } catch (const BudgetError& error) {
        if (strict) smallest_ = error.needed_bytes();
        return nullptr;
      }
      Schedule schedule = schedule_of(flow, graph, plan.actions);
      if (!schedule.late.empty()) {
        for (const int32_t gradient : schedule.late) flow.defer(gradient);
        continue;
      }
      Placement placement = place(schedule);
      const int64_t bytes = graph.graph.baseline_bytes + arena_of(placement);
      if (bytes <= limit_)
        return std::make_unique<Candidate>(
            Candidate{flow, std::move(graph), std::move(plan), std::move(schedule), std::move(placement), bytes});
      nearest_ = std::min(nearest_, bytes);
      if (!strict) return nullptr;
      budget = std::min(budget, plan.predicted_peak_bytes) - (bytes - limit_);
    }
    return nullptr;
  }

  [[noreturn]] void refuse_ram(int64_t kept_bytes) {
    const StepFlow flow(step_);
    const StepGraph graph = graph_of(flow, kFixedBytes + optimizer_bytes_, options_.optimizer);
    const Floor floor = floor_of(graph.graph);
    const bool parameters_fit = graph.graph.baseline_bytes <= limit_;
    const int64_t prediction = graph.graph.baseline_bytes + prediction_places_.bytes;
    const int64_t smallest =
        smallest_that_works(std::max({smallest_.value_or(limit_ + 1), limit_ + 1, prediction}), kept_bytes) +
        options_.stack_bytes;
    std::string message = "[export] no plan fits " + std::to_string(options_.ram_bytes) + " bytes (" +
                          format_bytes(options_.ram_bytes) + ") of RAM; the smallest that was found needs " +
                          std::to_string(smallest) + " (" + format_bytes(smallest) + "), of which the stack has " +
                          std::to_string(options_.stack_bytes) + ". It takes " + to_text(floor);
    if (optimizer_bytes_ > 0)
      message += " (" + format_bytes(optimizer_bytes_) + " of it " + options_.optimizer + "'s; sgd keeps nothing)";
    message += !parameters_fit
                   ? "; what is trained takes more than all of it: freeze parameters (requires_grad_(False) moves them "
                     "to flash)"
                   : "; a smaller batch, frozen parameters (requires_grad_(False)) or more RAM would help";
    throw BudgetError(message, options_.ram_bytes, std::min(floor.peak_bytes + options_.stack_bytes, smallest),
                      smallest);
  }

  ExportedStep write(const Candidate& chosen, int64_t kept_bytes) const {
    ExportedStep result;
    for (const StepBuffer& buffer : step_.buffers) {
      if (buffer.kind == StepBuffer::Kind::kInput) result.batch_bytes += buffer.bytes;
      if (buffer.kind == StepBuffer::Kind::kConstant) result.constant_bytes += buffer.bytes;
    }
    result.parameter_bytes = 4 * places_.parameters;
    result.optimizer_bytes = optimizer_bytes_;
    result.state_bytes = 4 * places_.state;
    result.fixed_bytes = kFixedBytes;
    result.arena_bytes = arena_of(chosen.placement);
    result.ram_bytes = chosen.bytes;
    result.predicted_bytes =
        std::max(chosen.plan.predicted_peak_bytes, chosen.bytes - result.arena_bytes + prediction_places_.live_bytes);
    result.kept_bytes = kept_bytes;
    result.calls = static_cast<int64_t>(chosen.schedule.calls.size());
    result.replays = std::ranges::count_if(chosen.schedule.calls, &ScheduledCall::again);
    result.replay_instructions = chosen.plan.predicted_seconds * 1e9;
    result.instructions = chosen.graph.graph.step_seconds * 1e9 + result.replay_instructions;
    for (const auto& [name, text] : kRuntimeSources) result.files["kernels/" + std::string(name)] = text;
    const ProgramParts parts{step_,       chosen.flow,        options_, places_, chosen.schedule, chosen.placement,
                             prediction_, prediction_places_, result};
    std::map<std::string, std::string> files = result.files;
    files[options_.name + ".h"] = model_header(parts);
    files[options_.name + ".c"] = model_source(parts);
    files["example.c"] = example_source(parts);
    files["CMakeLists.txt"] = cmake_lists(parts);
    files["schedule.json"] = schedule_json(parts);
    files["graph.json"] = to_json(chosen.graph.graph);
    files["plan.json"] = to_json(chosen.plan);
    result.files = std::move(files);
    return result;
  }

  const Step step_;
  const ExportOptions& options_;
  const FixedPlaces places_;
  int64_t optimizer_bytes_ = 0;
  int64_t limit_ = 0;  ///< of all but the stack
  Schedule prediction_;
  Placement prediction_places_;
  std::optional<int64_t> smallest_;  ///< as the planner says
  int64_t nearest_ = 0;              ///< the least of plans whose addresses did not fit
};

}  // namespace
}  // namespace remat::exporting

namespace remat {

std::string ExportedStep::summary() const {
  const auto row = [](const std::string& name, int64_t bytes) {
    const std::string number = std::to_string(bytes);
    return "  " + name + std::string(24 - std::min<size_t>(name.size(), 23), ' ') +
           std::string(10 - std::min<size_t>(number.size(), 9), ' ') + number + " bytes\n";
  };
  std::string text = "RAM: " + std::to_string(ram_bytes) + " bytes (" + format_bytes(ram_bytes) + "), " +
                     std::to_string(kept_bytes) + " if nothing were recomputed\n";
  text += row("parameters", parameter_bytes);
  if (optimizer_bytes > 0) text += row("optimizer's state", optimizer_bytes);
  if (state_bytes > 0) text += row("running statistics", state_bytes);
  text += row("batch", batch_bytes) + row("loss, counter, rule", fixed_bytes) + row("arena", arena_bytes);
  if (constant_bytes > 0) text += "flash: " + std::to_string(constant_bytes) + " bytes of constants\n";
  const double plain = instructions - replay_instructions;
  const auto tenths = static_cast<int64_t>(plain > 0 ? 1000 * replay_instructions / plain + 0.5 : 0);
  text += "a step: " + std::to_string(calls) + " calls, " + std::to_string(replays) + " of them again; about " +
          std::to_string(static_cast<int64_t>(instructions)) + " instructions on a Cortex-M4F, +" +
          std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " % by recomputing\n";
  return text;
}

ExportedStep export_step(std::string_view step_json, const ExportOptions& options) {
  return exporting::Exporter(step_json, options).run();
}

}  // namespace remat
