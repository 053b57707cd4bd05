// remat/tile_trials.h -- the trials that tell which tiles have the bits of the whole (remat/tiles.h).
#pragma once

namespace remat {

/// The next call of linear_cross_entropy() or tiled_mlp() with any shapes makes its trial anew, as in a new process:
/// for those who measure what a first step takes. Thread-safe.
void forget_tile_choices();

}  // namespace remat
