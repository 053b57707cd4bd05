#include <remat/fit.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <remat/error.h>

#include "module.h"

namespace remat::python {
namespace {

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "record" : mode == FitMode::kPlain ? "plain" : "remat";
}

/// Calls `run(size, mode)`, which returns whether the steps fit, their peak, the seconds of those that are timed, and
/// the JSON of the graph.
FitTrial run_steps(const py::function& run, int64_t size, FitMode mode) {
  std::tuple<bool, int64_t, std::vector<double>, std::optional<std::string>> outcome;
  {
    const py::gil_scoped_acquire lock;
    outcome = run(size, name_of(mode)).cast<decltype(outcome)>();
  }
  auto& [fits, peak_bytes, seconds, graph] = outcome;
  return {fits, peak_bytes, seconds.empty() ? 0 : seconds.back(),
          graph ? std::optional(graph_from_json(*graph)) : std::nullopt, std::move(seconds)};
}

/// Calls `run(budget_bytes)`, of None for 1 %, which returns the peak, or what a BudgetError says: its message, the
/// budget, the lower bound and what is needed.
int64_t train_within(const py::function& run, const Budget& budget) {
  using Refusal = std::tuple<std::string, int64_t, int64_t, int64_t>;
  const bool in_bytes = budget.kind() == Budget::Kind::kBytes;
  const py::gil_scoped_acquire lock;
  const py::object outcome = run(in_bytes ? py::object(py::int_(budget.byte_count())) : py::object(py::none()));
  if (!py::isinstance<py::tuple>(outcome)) return outcome.cast<int64_t>();
  const auto [message, limit, lower_bound, needed] = outcome.cast<Refusal>();
  throw BudgetError(message, limit, lower_bound, std::nullopt, needed);
}

}  // namespace

void bind_fit(py::module_& m) {
  m.def("fit_sizes", &fit_sizes);
  m.def("fit_budget", [](const py::function& run) {
    const py::gil_scoped_release unlocked;
    return fit_budget([&](const Budget& budget) { return train_within(run, budget); });
  });
  m.def("fit", [](std::vector<int64_t> sizes, int64_t budget_bytes, double most_loss_percent, int64_t effective,
                  bool predict_only, std::string what, const py::function& run) {
    const FitOptions options{.sizes = std::move(sizes),
                             .budget_bytes = budget_bytes,
                             .most_loss_percent = most_loss_percent,
                             .effective = effective,
                             .predict_only = predict_only,
                             .what = std::move(what)};
    const py::gil_scoped_release unlocked;
    const Fit found = fit(options, [&](int64_t size, FitMode mode) { return run_steps(run, size, mode); });
    return std::pair(to_json(found), to_text(found));
  });
}

}  // namespace remat::python
