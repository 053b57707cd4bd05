#include "cli/fit.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <remat/budget.h>
#include <remat/error.h>

#include <remat/support/number_text.h>
#include "cli/fitting.h"
#include "cli/json_file.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "recorded" : mode == FitMode::kPlain ? "plain" : "with remat";
}

/// Says on the way what is run.
Fit search(const FitSettings& settings, const std::vector<int64_t>& sizes, int64_t budget) {
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
  return fit(options, run);
}

/// By recomputing alone; nothing where not even the smallest size fits so.
std::optional<Fit> search_without_disk(FitSettings settings, const std::vector<int64_t>& sizes, int64_t budget) {
  settings.disk.clear();
  try {
    return search(settings, sizes, budget);
  } catch (const BudgetError&) {
    return std::nullopt;
  }
}

/// "The disk makes the batch 1.25 times as large: 120 in place of 96.\n"
std::string bought_text(const Fit& with, const std::optional<Fit>& without) {
  const std::string found = std::to_string(with.largest.size);
  if (!without) return "Without the disk no " + with.what + " fits; with it, up to " + found + " do.\n";
  const FitPoint &own = with.largest, &other = without->largest;
  if (own.size != other.size) {
    return "The disk makes the " + with.what + " " +
           support::fixed_text(static_cast<double>(own.size) / static_cast<double>(other.size), 2) +
           " times as large: " + found + " in place of " + std::to_string(other.size) + ".\n";
  }
  std::string text = "The disk makes no larger " + with.what + " fit";
  if (own.seconds > 0 && other.seconds > 0) {
    const double less = 100 * (1 - own.seconds / other.seconds);
    text += "; a step of " + found + " takes " + support::fixed_text(std::abs(less), 1) + " % " +
            (less >= 0 ? "less" : "more") + " time with it";
  }
  return text + ".\n";
}

}  // namespace

void run_fit(const FitSettings& settings) {
  check_json_path(settings.json);
  const auto sizes = sizes_along(settings);
  const int64_t budget = ZooSteps::budget_bytes(settings);
  std::printf("%s: the largest %s within %s\n", settings.model.c_str(), settings.along.c_str(),
              format_bytes(budget).c_str());
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Fit> without;
  if (!settings.disk.empty()) {
    std::printf("without the disk\n");
    without = search_without_disk(settings, sizes, budget);
    std::printf("with it\n");
  }
  const Fit found = search(settings, sizes, budget);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string bought = settings.disk.empty() ? "" : bought_text(found, without);
  std::printf("\n%s%sfound in %s\n", to_text(found).c_str(), bought.c_str(), format_seconds(seconds).c_str());
  nlohmann::json json = {{"command", "fit"}, {"model", settings.model}, {"sizes", sizes}, {"seconds", seconds}};
  json.update(nlohmann::json::parse(to_json(found)));
  if (!settings.disk.empty()) {
    json["without_disk"] = without ? nlohmann::json::parse(to_json(*without)) : nlohmann::json();
  }
  write_json(settings.json, json);
}

}  // namespace remat::cli
