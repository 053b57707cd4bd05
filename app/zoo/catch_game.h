// zoo/catch_game.h -- a small game of pixels: a ball falls, a paddle is to catch it.
#pragma once

#include <memory>

#include "zoo/environment.h"

namespace remat::zoo {

struct CatchConfig {
  uint64_t seed = 0;
  int64_t size = 24;  ///< pixels on each side, an even number from 12 on
};

/// Observations: (2, size, size) bytes, 0 or 255, which are the frame before and this one; an episode begins with two
/// frames that are the same. Actions: 0 moves the paddle to the left, 1 leaves it, 2 moves it to the right, by two
/// pixels. An episode is the fall of one ball, size / 2 - 1 steps: in each it falls by two pixels, and drifts by one or
/// none, the same way until a wall turns it round. At the bottom the reward is 1 for a ball that is caught and -1 for
/// one that is not, and 0 before. Throws remat::Error for a config that cannot be.
std::unique_ptr<Environment> make_catch_game(const CatchConfig& config);

}  // namespace remat::zoo
