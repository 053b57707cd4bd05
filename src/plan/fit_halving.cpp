// What fits, found as without graphs: by real steps, halving until one fits, then between that and the last that did
// not.
#include <remat/fit.h>

#include <algorithm>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/rounds.h>

namespace remat {
namespace {

/// The largest of ascending `sizes` where `fits`; nothing where none does. Begins at the largest.
std::optional<FitPoint> by_halving(const std::vector<int64_t>& sizes,
                                   const std::function<std::optional<FitPoint>(int64_t size)>& fits) {
  std::optional<FitPoint> best;
  auto good = sizes.begin(), bad = sizes.end();  // all before `good` fit, none from `bad` on does
  for (auto tried = sizes.end() - 1;;) {
    if (auto point = fits(*tried)) {
      best = point;
      good = tried + 1;
    } else {
      bad = tried;
    }
    if (good >= bad) return best;
    tried = best ? good + (bad - good - 1) / 2
                 : std::max(sizes.begin(), std::upper_bound(sizes.begin(), bad, *bad / 2) - 1);
  }
}

}  // namespace

Fit fit_by_halving(const FitOptions& options, const FitSteps& steps) {
  options.check();
  Fit fit;
  fit.what = options.what;
  fit.budget_bytes = options.budget_bytes;
  fit.most_loss_percent = options.most_loss_percent;
  const auto fits = [&](FitMode mode) {
    return [&, mode](int64_t size) -> std::optional<FitPoint> {
      const FitTrial trial = steps(size, mode);
      const bool within = trial.fits && trial.peak_bytes <= options.budget_bytes;
      fit.runs.push_back({size, mode, within});
      if (!within) return std::nullopt;
      RoundTimes times;
      times.add_round(trial.step_seconds.empty() ? std::vector<double>{trial.seconds} : trial.step_seconds);
      return FitPoint{size, trial.peak_bytes, times.least(), true, times.usual()};
    };
  };
  fit.plain = by_halving(options.sizes, fits(FitMode::kPlain));
  const auto largest = by_halving(options.sizes, fits(FitMode::kRemat));
  if (!largest) {
    throw BudgetError("[fit] no " + options.what + " fits " + format_exact_bytes(options.budget_bytes) +
                          "; give more, or smaller sizes",
                      options.budget_bytes, options.budget_bytes + 1, std::nullopt);
  }
  fit.largest = *largest;
  return fit;
}

}  // namespace remat
