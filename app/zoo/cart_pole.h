// zoo/cart_pole.h -- balance a pole on a cart (Barto, Sutton and Anderson 1983).
#pragma once

#include <memory>

#include "zoo/environment.h"

namespace remat::zoo {

struct CartPoleConfig {
  uint64_t seed = 0;
  int64_t longest = 500;  ///< steps after which an episode is truncated
};

/// Observations: 4 floats, which are the cart's position (m) and speed (m/s), and the pole's angle (rad, 0 is upright)
/// and angular speed (rad/s). Actions: 0 pushes to the left, 1 to the right. Each step gives the reward 1. An episode
/// terminates where the cart is more than 2.4 m from its place or the pole more than 12 degrees from upright. Throws
/// remat::Error for a config that cannot be.
std::unique_ptr<Environment> make_cart_pole(const CartPoleConfig& config);

}  // namespace remat::zoo
