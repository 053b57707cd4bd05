// cli/train_options.h -- the options of `remat train` and `remat compare`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/settings.h"

namespace CLI {
class App;
}

namespace remat::cli {

struct TrainOptions {
  TrainSettings settings;
  std::optional<int64_t> batch, seq, image_size;  ///< what may be left out and whose default depends on others
  std::optional<int64_t> lora;                    ///< the rank
  std::string config;
  // Which options were given, and where, as "--layers".
  std::set<std::string> on_command_line, in_config;
};

/// `train`: for `remat train`, which has more of them than `remat compare`. The app refers to `options`.
void add_train_options(CLI::App& app, TrainOptions& options, bool train);

/// Fills in what depends on other options. Throws UsageError where they contradict each other, or one has no effect
/// beside another; one of the config file may, where the command line has the other.
TrainSettings finish_train_options(const TrainOptions& options, const std::vector<std::string>& arguments);

}  // namespace remat::cli
