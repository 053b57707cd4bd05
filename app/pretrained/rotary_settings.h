// pretrained/rotary_settings.h -- rotary positions as config.json says them: "rope_parameters" since version 5 of
// transformers, "rope_theta" and "rope_scaling" before.
#pragma once

#include "pretrained/config_file.h"
#include "zoo/rotary.h"

namespace remat::pretrained {

/// Positions of heads of `head_width` numbers. Throws Error for a way to scale them that is not known here, and for
/// settings of one that are missing, or that nothing reads.
zoo::RotaryConfig describe_rotary(const ConfigFile& config, int64_t head_width);

/// The same where "rope_parameters" has two objects, of layers that see everything ("full_attention") and of those with
/// a window ("sliding_attention"), whose base "rope_local_base_freq" was before. Gemma 3's.
struct TwoRotaries {
  zoo::RotaryConfig whole, window;
};
TwoRotaries describe_two_rotaries(const ConfigFile& config, int64_t head_width);

}  // namespace remat::pretrained
