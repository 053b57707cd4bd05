// cli/given_options.h -- the options of `remat train` and `remat compare` as they were given.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "cli/settings.h"

namespace remat::cli {

struct TrainOptions {
  TrainSettings settings;
  std::optional<int64_t> batch, seq, image_size;  ///< what may be left out and whose default depends on others
  std::optional<int64_t> lora;                    ///< the rank
  std::string config;
  // Which options were given, and where, as "--layers".
  std::set<std::string> on_command_line, in_config;
};

}  // namespace remat::cli
