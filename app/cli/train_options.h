// cli/train_options.h -- the options of `remat train` and `remat compare`.
#pragma once

#include <string>
#include <vector>

#include "cli/given_options.h"

namespace CLI {
class App;
}

namespace remat::cli {

/// `train`: for `remat train`, which has more of them than `remat compare`. The app refers to `options`.
void add_train_options(CLI::App& app, TrainOptions& options, bool train);

/// Fills in what depends on other options. Throws UsageError where they contradict each other, or one has no effect
/// beside another; one of the config file may, where the command line has the other.
TrainSettings finish_train_options(const TrainOptions& options, const std::vector<std::string>& arguments);

}  // namespace remat::cli
