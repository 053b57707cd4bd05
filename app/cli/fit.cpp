#include "cli/fit.h"

#include <chrono>
#include <cstdio>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include <remat/budget.h>

#include "cli/fitting.h"
#include "cli/json_file.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "recorded" : mode == FitMode::kPlain ? "plain" : "with remat";
}

}  // namespace

void run_fit(const FitSettings& settings) {
  check_json_path(settings.json);
  const auto sizes = sizes_along(settings);
  const int64_t budget = ZooSteps::budget_bytes(settings);
  std::printf("%s: the largest %s within %s\n", settings.model.c_str(), settings.along.c_str(),
              format_bytes(budget).c_str());
  const auto begin = std::chrono::steady_clock::now();
  ZooSteps steps(settings, budget);
  std::set<std::tuple<int64_t, FitMode, bool>> told;
  const auto run = [&](int64_t size, FitMode mode) {
    std::fflush(stdout);
    FitTrial trial = steps.run(size, mode);
    // Sizes whose times are compared are run again and again.
    if (!told.insert({size, mode, trial.fits}).second) return trial;
    std::printf("  %s %lld, %s: %s\n", settings.along.c_str(), static_cast<long long>(size), name_of(mode),
                trial.fits ? format_bytes(trial.peak_bytes).c_str() : "does not fit");
    return trial;
  };
  const FitOptions options{.sizes = sizes,
                           .budget_bytes = budget,
                           .most_loss_percent = settings.most_loss,
                           .effective = settings.effective,
                           .predict_only = settings.predict,
                           .what = settings.along};
  const Fit found = fit(options, run);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("\n%sfound in %s\n", to_text(found).c_str(), format_seconds(seconds).c_str());
  nlohmann::json json = {{"command", "fit"}, {"model", settings.model}, {"sizes", sizes}, {"seconds", seconds}};
  json.update(nlohmann::json::parse(to_json(found)));
  write_json(settings.json, json);
}

}  // namespace remat::cli
