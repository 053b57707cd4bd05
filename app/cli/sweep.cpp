#include "cli/sweep.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>

#include <remat/error.h>
#include <remat/planner.h>

#include "cli/comma_list.h"
#include "cli/measuring.h"
#include "cli/output_file.h"
#include "cli/printable.h"
#include "cli/sweep_results.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  if (text.empty() || text == "none") return numbers;
  for (const auto& item : comma_list(text)) numbers.push_back(std::stoll(item, nullptr, 10));
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

void add_once(std::vector<std::string>& list, const std::string& item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

class Sweep {
 public:
  explicit Sweep(const SweepSettings& settings) : settings_(settings), lists_(sweep_lists(settings)) {
    results_.model = settings.model;
    for (const auto& [name, size] : {std::pair("batch", settings.batch), std::pair("length", settings.length),
                                     std::pair("depth", settings.depth), std::pair("width", settings.width)}) {
      results_.sizes[name] = size > 0 ? nlohmann::json(size) : nlohmann::json();
    }
    results_.remat_version = REMAT_VERSION;
    results_.surroundings = surroundings();
  }

  void run() {
    prepare_output();
    const bool checkpoints = settings_.checkpoints != "none";
    if (!lists_.budgets.empty() || checkpoints) {
      SweptModel model(settings_, 0);
      results_.step.emplace(model.graph());
      results_.batch = model.batch();
      print(step_text(results_));
      sweep_budgets(model);
      if (checkpoints) sweep_checkpoints(model);
    }
    for (const int64_t depth : lists_.depths) sweep_depth(depth);
    print(depths_text(results_));
    results_.complete = true;
    write();
    if (!settings_.out.empty()) std::printf("sweep.json and the plots are in %s\n", printable(settings_.out).c_str());
    if (refusal_ && !planned_) std::rethrow_exception(refusal_);
    if (failure_ && !measured_) std::rethrow_exception(failure_);
  }

 private:
  static void print(const std::string& text) {
    if (text.empty()) return;
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);  // what comes next may take a while
  }

  std::string path(const std::string& name) const { return (fs::path(settings_.out) / name).string(); }

  void prepare_output() const {
    if (settings_.out.empty()) return;
    std::error_code error;
    fs::create_directories(settings_.out, error);
    if (!fs::is_directory(settings_.out)) {
      throw Error("[out] '" + settings_.out + "' cannot be a directory for the results (" +
                  (error ? error.message() : "it is a file") + "); give another path with --out");
    }
    check_output_path(path("sweep.json"), "out");
  }

  void write() const {
    if (settings_.out.empty()) return;
    write_output(path("sweep.json"), to_json(results_).dump(1) + '\n', "out");
    for (const auto& [name, text] : sweep_plots(results_)) write_output(path(name), text, "out");
  }

  void measure(SweptModel& model, SweepCell& cell, const PlainStep& plain, const std::string& where) {
    if (!settings_.measure || !cell.attempt.plan) return;
    const auto failure = measure_cell(cell, [&](const Plan& plan) { return model.measure(plan, settings_.rounds); });
    measured_ = measured_ || !failure;
    if (!failure_) failure_ = failure;
    write();  // first: whoever has seen it has it
    std::fputs(measured_text(cell, plain, where).c_str(), stdout);
    std::fflush(stdout);
  }

  void sweep_budgets(SweptModel& model) {
    for (const auto& planner : lists_.budgets.empty() ? std::vector<std::string>() : lists_.planners) {
      for (auto& cell : plan_budgets(model.graph(), planner, lists_.budgets)) {
        planned_ = planned_ || cell.attempt.plan;
        if (!refusal_) refusal_ = cell.attempt.error;
        results_.budgets.push_back(std::move(cell));
      }
      write();
    }
    for (auto& cell : results_.budgets) {
      measure(model, cell, results_.step->plain, cell.name + " within " + cell.budget);
    }
    print(budgets_text(results_));
  }

  void sweep_checkpoints(SweptModel& model) {
    results_.checkpoints = plan_checkpoints(model.graph(), lists_.checkpoints);
    write();
    for (auto& row : results_.checkpoints) {
      measure(model, row.cell, results_.step->plain, checkpoints_name(row.places.size()));
    }
    print(checkpoints_text(results_));
  }

  void sweep_depth(int64_t depth) {
    SweptModel model(settings_, depth);
    results_.depths.push_back(plan_depth(model.graph(), depth));
    write();
    DepthRow& row = results_.depths.back();
    for (auto& cell : row.cells) measure(model, cell, row.plain, "depth " + std::to_string(depth) + ", " + cell.name);
  }

  const SweepSettings& settings_;
  const SweepLists lists_;
  SweepResults results_;
  std::exception_ptr refusal_, failure_;  ///< the first of a planner, and the first of a measurement
  bool planned_ = false;                  ///< some planner had a plan for some budget
  bool measured_ = false;                 ///< some plan's steps were measured
};

}  // namespace

SweepLists sweep_lists(const SweepSettings& settings) {
  SweepLists lists;
  if (settings.budgets != "none") {
    for (const auto& budget : comma_list(settings.budgets)) add_once(lists.budgets, budget);
  }
  if (settings.planners == "all") {
    for (const PlannerInfo& info : list_planners()) lists.planners.emplace_back(info.name);
  } else {
    for (const auto& planner : comma_list(settings.planners)) add_once(lists.planners, planner);
  }
  lists.checkpoints = numbers_of(settings.checkpoints);
  lists.depths = numbers_of(settings.depths);
  return lists;
}

void run_sweep(const SweepSettings& settings) { Sweep(settings).run(); }

}  // namespace remat::cli
