#include "zoo/environment.h"

#include <string>

#include <remat/error.h>

namespace remat::zoo {

at::Tensor Environment::reset(uint64_t episode) {
  std::seed_seq seeds{seed_, seed_ >> 32, episode, episode >> 32};  // of each the lower 32 bits
  std::mt19937_64 random(seeds);
  in_progress_ = true;
  return begin(random);
}

Reaction Environment::step(int64_t action) {
  if (!in_progress_) throw Error("[environment] no episode is in progress; call reset() before step()");
  if (action < 0 || action >= actions()) {
    throw Error("[environment] there is no action " + std::to_string(action) + "; give 0 to " +
                std::to_string(actions() - 1));
  }
  auto reaction = advance(action);
  in_progress_ = !reaction.terminated && !reaction.truncated;
  return reaction;
}

double uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

}  // namespace remat::zoo
