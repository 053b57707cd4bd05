#include "cli/saved_steps.h"

#include <cmath>
#include <cstdio>

#include <remat/error.h>

#include "cli/printable.h"
#include "cli/training_loop.h"

namespace remat::cli {

void run_saved_steps(Training& training, const TrainSettings& settings, const std::string& label,
                     std::vector<StepResult>& results, const SaveState& save,
                     const std::function<void(const StepResult&)>& after_step) {
  const auto first_step = training.steps_done();
  const auto save_sometimes = [&](const StepResult& result) {
    after_step(result);
    if (settings.checkpoint_every == 0 || result.step % settings.checkpoint_every != 0) return;
    if (result.step == settings.steps) return;  // the end saves
    try {
      save(settings.checkpoint);
    } catch (const Error& error) {
      if (training.is_between_steps()) throw;
      // A disk can be full for a moment; the training is worth more than this checkpoint. The last one decides.
      print_notice(error.what() + std::string("; training goes on"), /*in_progress=*/true);
    }
  };
  try {
    run_steps(training, settings, label, results, save_sometimes);
  } catch (const Error&) {
    // Not a loss that diverged, or parameters of which some were updated: that state is worth nothing.
    const bool sound = !training.is_between_steps() && (results.empty() || std::isfinite(results.back().loss));
    if (sound && !settings.checkpoint.empty() && training.steps_done() > first_step) {
      try {
        save(settings.checkpoint);
        std::printf("saved step %lld in %s\n", static_cast<long long>(training.steps_done()),
                    printable(settings.checkpoint).c_str());
      } catch (const Error& unsaved) {  // why the step failed is what tells more
        print_notice(unsaved.what());
      }
    }
    throw;
  }
}

}  // namespace remat::cli
