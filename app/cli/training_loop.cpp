#include "cli/training_loop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include <remat/error.h>

#include "cli/head_loss.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace remat::cli {

void run_steps(Training& training, const TrainSettings& settings, const std::string& label,
               std::vector<StepResult>& results, const std::function<void(const StepResult&)>& after_step) {
  Progress progress(stdout);
  int64_t peak = 0;  // since the budget holds
  bool held = false;
  double smooth_seconds = 0;  // a moving average: the speed now, not since the beginning
  while (training.steps_done() < settings.steps && training.stop_signal() == 0) {
    const auto& result = results.emplace_back(training.step());
    const bool holds = result.budget_bytes.has_value();
    if (holds && !std::exchange(held, true)) peak = 0;
    peak = std::max(peak, holds ? result.report->peak_bytes : result.peak_bytes);
    smooth_seconds = smooth_seconds == 0 ? result.seconds : 0.8 * smooth_seconds + 0.2 * result.seconds;
    progress.show({.label = label,
                   .step = result.step,
                   .steps = settings.steps,
                   .loss = result.loss,
                   .item_name = item_name(settings),
                   .items_per_second = static_cast<double>(items_per_step(settings)) / smooth_seconds,
                   .times_plain = {},
                   .current_bytes = training.current_bytes(),
                   .peak_bytes = peak,
                   .budget_bytes = result.budget_bytes,
                   .seconds_left = smooth_seconds * static_cast<double>(settings.steps - result.step)});
    check_loss(result);
    if (after_step) after_step(result);
  }
}

void check_loss(const StepResult& result) {
  if (std::isfinite(result.loss)) return;
  throw Error("[train] the loss is " + format_number(result.loss, 0) + " in step " + std::to_string(result.step) +
              (result.step == 1 ? ", before anything was learned; look at the data and at the weights it begins from"
                                : "; lower --lr"));
}

double median_seconds(const std::vector<StepResult>& results) {
  std::vector<double> seconds;
  seconds.reserve(results.size());
  for (const auto& result : results) seconds.push_back(result.seconds);
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  if (seconds.empty()) return 0;
  std::ranges::sort(seconds);
  const auto middle = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
}

nlohmann::json to_json(const StepResult& result) {
  nlohmann::json json = {{"step", result.step},
                         {"loss", result.loss},
                         {"loss_bits", std::bit_cast<uint32_t>(result.loss)},
                         {"seconds", result.seconds},
                         {"baseline_bytes", result.baseline_bytes},
                         {"peak_bytes", result.peak_bytes}};
  if (!result.rank_peak_bytes.empty()) json["rank_peak_bytes"] = result.rank_peak_bytes;
  if (result.head) json["head"] = head_json(*result.head);
  if (result.report) json["report"] = nlohmann::json::parse(to_json(*result.report));
  return json;
}

}  // namespace remat::cli
