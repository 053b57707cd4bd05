#include "run/step_planner.h"

#include <algorithm>
#include <utility>

#include <remat/error.h>
#include <remat/planner.h>

namespace remat {
namespace {

/// Steps whose times are looked at. The first is often slow: nothing is in any cache yet.
constexpr size_t kSamples = 4;

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

StepPlanner::StepPlanner(std::string planner, bool pack) : planner_(std::move(planner)), pack_(pack) {
  if (planner_ == "online") return;
  std::string names = "online";
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == planner_) return;
    names += ", " + std::string(info.name);
  }
  throw Error("[session] there is no planner \"" + planner_ + "\"; there are " + names);
}

bool StepPlanner::wants_trace() const { return planner_ != "online" && samples_.size() < kSamples; }

void StepPlanner::observe(Graph graph) {
  const uint64_t fingerprint = graph.fingerprint();
  if (!graph_ || fingerprint != fingerprint_) samples_.clear();
  std::vector<double> seconds;
  for (const GraphOperator& op : graph.operators) seconds.push_back(op.seconds);
  samples_.push_back(std::move(seconds));
  graph_ = std::move(graph);
  fingerprint_ = fingerprint;
  use_medians();
  planned_room_.reset();
}

void StepPlanner::use_medians() {
  std::vector<double> seen;
  for (size_t o = 0; o < graph_->operators.size(); ++o) {
    seen.clear();
    for (const auto& sample : samples_) seen.push_back(sample[o]);
    GraphOperator& op = graph_->operators[o];
    const double share = op.seconds > 0 ? op.replay_seconds / op.seconds : 1;
    op.seconds = median(seen);
    op.replay_seconds = share * op.seconds;
  }
}

std::shared_ptr<const Schedule> StepPlanner::schedule(int64_t room) {
  if (planner_ == "online" || !graph_) return nullptr;
  if (planned_room_ == room) return schedule_;
  planned_room_ = room;
  schedule_ = nullptr;
  const int64_t budget = graph_->baseline_bytes + room;
  const std::vector<Fate> keep(graph_->values.size(), Fate::kKeep);
  if (planner_ == "auto" && predict(*graph_, keep).peak_bytes <= budget) return nullptr;
  try {
    schedule_ =
        std::make_shared<const Schedule>(Schedule{*graph_, make_plan(*graph_, budget, planner_, {.pack = pack_})});
  } catch (const BudgetError&) {  // what decides when memory runs short may still find a way
  }
  return schedule_;
}

}  // namespace remat
