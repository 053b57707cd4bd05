#include "plan/forecast.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <remat/error.h>
#include <remat/planner.h>

#include "plan/extrapolation.h"
#include "plan/resize.h"

namespace remat {
namespace {

/// Of its activations: what a step without a plan may take more than predicted, by the times that it measures.
constexpr int64_t kPartForTimes = 16;

Forecast forecast_of(const Graph& graph) {
  const int64_t plain = graph.plain_peak_bytes();
  const int64_t least = smallest_online_budget(graph);
  return {.baseline_bytes = graph.baseline_bytes,
          .plain_peak_bytes = plain,
          .smallest_budget_bytes =
              std::clamp(least + (least - graph.baseline_bytes) / kPartForTimes, least, std::max(least, plain)),
          .plain_seconds = graph.step_seconds};
}

std::optional<Plan> plan_of(const Graph& graph, int64_t budget_bytes) {
  try {
    return make_plan(graph, budget_bytes);
  } catch (const BudgetError&) {
    return std::nullopt;
  }
}

}  // namespace

void Forecaster::add(int64_t size, Graph graph) {
  known_.insert_or_assign(size, std::move(graph));
  forecasts_.clear();
  const uint64_t structure = structure_of(known_.rbegin()->second);
  alike_.clear();
  for (const auto& [each, other] : known_) {
    if (structure_of(other) == structure) alike_.emplace(each, other);
  }
}

std::optional<Graph> Forecaster::graph(int64_t size) const {
  const auto found = known_.find(size);
  if (found != known_.end()) return found->second;
  if (!same_operators()) return std::nullopt;
  Graph told = extrapolate(alike_, size);
  return told.is_valid() ? std::optional(std::move(told)) : std::nullopt;
}

const Forecast& Forecaster::at(int64_t size) {
  const auto found = forecasts_.find(size);
  if (found != forecasts_.end()) return found->second;
  if (const auto told = graph(size)) return forecasts_[size] = forecast_of(*told);
  std::vector<int64_t> sizes;
  std::vector<Forecast> at_known;
  for (const auto& [each, recorded] : known_) {
    sizes.push_back(each);
    at_known.push_back(at(each));
  }
  const Extrapolation at_size(sizes, size, /*curved=*/true);
  const auto bytes = [&](auto figure) {
    return std::max<int64_t>(0, std::llround(at_size([&](size_t k) { return at_known[k].*figure; })));
  };
  Forecast told;
  told.baseline_bytes = bytes(&Forecast::baseline_bytes);
  told.plain_peak_bytes = std::max(told.baseline_bytes, bytes(&Forecast::plain_peak_bytes));
  told.smallest_budget_bytes =
      std::clamp(bytes(&Forecast::smallest_budget_bytes), told.baseline_bytes, told.plain_peak_bytes);
  told.plain_seconds = at_known.back().plain_seconds * static_cast<double>(size) / static_cast<double>(sizes.back());
  return forecasts_[size] = told;
}

std::optional<double> Forecaster::seconds_within(int64_t size, int64_t budget_bytes) {
  const Forecast told = at(size);
  if (told.plain_peak_bytes <= budget_bytes) return told.plain_seconds;
  if (const auto own = graph(size)) {
    const auto planned = plan_of(*own, budget_bytes);
    if (!planned) return std::nullopt;
    return own->step_seconds + planned->predicted_seconds;
  }
  // As much more as the largest known step takes in the same share of its activation peak.
  const auto& [known_size, known] = *known_.rbegin();
  const Forecast there = at(known_size);
  const auto share = static_cast<double>(budget_bytes - told.baseline_bytes) /
                     static_cast<double>(std::max<int64_t>(1, told.plain_peak_bytes - told.baseline_bytes));
  const auto room = static_cast<double>(there.plain_peak_bytes - there.baseline_bytes);
  const auto planned = plan_of(known, there.baseline_bytes + static_cast<int64_t>(share * room));
  if (!planned || known.step_seconds <= 0) return std::nullopt;
  return told.plain_seconds * (1 + planned->predicted_seconds / known.step_seconds);
}

std::optional<Plan> Forecaster::plan(int64_t size, int64_t budget_bytes) const {
  const auto own = graph(size);
  return own ? plan_of(*own, budget_bytes) : std::nullopt;
}

}  // namespace remat
