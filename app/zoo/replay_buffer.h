// zoo/replay_buffer.h -- the latest experience of an agent, from which training draws (Lin 1992).
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace remat::zoo {

/// A batch of transitions; the first dimension of each tensor is the batch.
struct Transitions {
  at::Tensor observation;
  at::Tensor action;      ///< (batch) integers
  at::Tensor reward;      ///< (batch) floats
  at::Tensor next;        ///< observations after the actions
  at::Tensor terminated;  ///< (batch) floats: 1 where the episode ended there, 0 elsewhere
};

/// To be read by load_transitions().
void save(const Transitions& transitions, torch::serialize::OutputArchive& archive);
Transitions load_transitions(torch::serialize::InputArchive& archive);

class ReplayBuffer {
 public:
  /// Holds `capacity` transitions between observations of this shape and type; its memory is taken here. Throws
  /// remat::Error for a capacity below 1.
  ReplayBuffer(int64_t capacity, at::IntArrayRef shape, at::ScalarType type);

  /// Adds a transition, in place of the oldest one where the buffer is full.
  void add(const at::Tensor& observation, int64_t action, double reward, const at::Tensor& next, bool terminated);

  /// `batch` transitions, each drawn uniformly from all that are held. Throws remat::Error where there are none.
  Transitions sample(int64_t batch, const at::Generator& random) const;

  void save(torch::serialize::OutputArchive& archive) const;
  /// What save() wrote of a buffer of the same capacity, shape and type, in the place of what is held.
  void load(torch::serialize::InputArchive& archive);

  /// Transitions held.
  int64_t size() const { return size_; }

 private:
  int64_t capacity_;
  int64_t size_ = 0;
  int64_t next_place_ = 0;
  Transitions held_;
};

}  // namespace remat::zoo
