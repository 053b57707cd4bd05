#include "cli/fit_options.h"

#include "cli/fitting.h"
#include "cli/model_options.h"
#include "cli/wrong_usage.h"

namespace remat::cli {

void add_fit_options(CLI::App& app, FitSettings& settings) {
  OptionAdder add(app);
  add_model(add, settings.model);
  add.budget("--budget", settings.budget,
             "The most memory for tensors, parameters and gradients included: 2GiB, 1500MB; or 40% of the peak that "
             "activations have without remat at the usual size. Add an optimizer's state");
  add.choice("--along", settings.along, {"batch", "length", "depth", "width"}, "What shall be as large as can be");
  add.count("--effective-batch", settings.effective,
            "The batch that is wanted of several steps together: how to split it for the least time", kMostBatch);
  add.add("--most-loss", settings.most_loss,
          "A larger size is worth its time where it handles at most this much less in a second, in percent")
      ->transform(range(0.0, 100.0))
      ->type_name("PERCENT");
  add.flag("--predict", settings.predict, "Run small steps alone; then nothing vouches for the answer");
  add.head(settings.head);
  add.disk(settings.disk);
  add_sizes(app, settings);
  add_size(app, "--most", settings.most, "The largest size to consider (default: 256 times the usual)");
  add.group("Files");
  add.file("--json", settings.json, "Write all figures here");
}

void check_fit_options(const FitSettings& settings) {
  if (settings.effective > 0 && settings.along != "batch") {
    throw UsageError("[options] --effective-batch has no meaning with --along " + settings.along +
                     ", which no steps add up to; leave one of them out");
  }
  check_sizes(settings);
  check_head(settings.model, settings.head);
}

}  // namespace remat::cli
