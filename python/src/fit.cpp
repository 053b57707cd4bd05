#include <remat/fit.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "module.h"

namespace remat::python {
namespace {

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "record" : mode == FitMode::kPlain ? "plain" : "remat";
}

/// Calls `run(size, mode)`, which returns whether the steps fit, their peak, the seconds of the last, and the JSON of
/// the graph.
FitTrial run_steps(const py::function& run, int64_t size, FitMode mode) {
  std::tuple<bool, int64_t, double, std::optional<std::string>> outcome;
  {
    const py::gil_scoped_acquire lock;
    outcome = run(size, name_of(mode)).cast<decltype(outcome)>();
  }
  auto& [fits, peak_bytes, seconds, graph] = outcome;
  return {fits, peak_bytes, seconds, graph ? std::optional(graph_from_json(*graph)) : std::nullopt};
}

}  // namespace

void bind_fit(py::module_& m) {
  m.def("fit_sizes", &fit_sizes);
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
