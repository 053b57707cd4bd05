// zoo/environment.h -- what an agent acts in: it sees an observation, takes an action and gets a reward.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::zoo {

/// What an action led to.
struct Reaction {
  at::Tensor observation;
  double reward = 0;
  bool terminated = false;  ///< the episode is over, and nothing can be won after it
  bool truncated = false;   ///< the episode is cut off, though it could go on
};

/// Each episode is a function of the seed, its number and the actions alone, so that a run can be repeated from any
/// episode on.
class Environment {
 public:
  explicit Environment(uint64_t seed) : seed_(seed) {}
  virtual ~Environment() = default;

  /// Of an observation.
  virtual std::vector<int64_t> shape() const = 0;
  virtual at::ScalarType type() const = 0;
  /// Actions are numbered from 0.
  virtual int64_t actions() const = 0;

  /// Begins an episode; returns its first observation.
  at::Tensor reset(uint64_t episode);
  /// Throws remat::Error where no episode is in progress, and for an action that there is not.
  Reaction step(int64_t action);

 private:
  virtual at::Tensor begin(std::mt19937_64& random) = 0;
  virtual Reaction advance(int64_t action) = 0;

  uint64_t seed_;
  bool in_progress_ = false;
};

/// A number from `low` up to, not including, `high`; the same one with every standard library.
double uniform(std::mt19937_64& random, double low, double high);

}  // namespace remat::zoo
