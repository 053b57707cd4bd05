#include "zoo/replay_buffer.h"

#include <algorithm>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {

ReplayBuffer::ReplayBuffer(int64_t capacity, at::IntArrayRef shape, at::ScalarType type) : capacity_(capacity) {
  if (capacity < 1) {
    throw Error("[replay_buffer] capacity is " + std::to_string(capacity) + "; give 1 or more transitions");
  }
  std::vector<int64_t> sizes = shape.vec();
  sizes.insert(sizes.begin(), capacity);
  held_ = {at::zeros(sizes, type), at::zeros({capacity}, at::kLong), at::zeros({capacity}), at::zeros(sizes, type),
           at::zeros({capacity})};
}

void ReplayBuffer::add(const at::Tensor& observation, int64_t action, double reward, const at::Tensor& next,
                       bool terminated) {
  held_.observation.select(0, next_place_).copy_(observation);
  held_.action.select(0, next_place_).fill_(action);
  held_.reward.select(0, next_place_).fill_(reward);
  held_.next.select(0, next_place_).copy_(next);
  held_.terminated.select(0, next_place_).fill_(terminated ? 1.0 : 0.0);
  next_place_ = (next_place_ + 1) % capacity_;
  size_ = std::min(size_ + 1, capacity_);
}

Transitions ReplayBuffer::sample(int64_t batch, const at::Generator& random) const {
  if (size_ == 0) throw Error("[replay_buffer] there is no transition to draw; add() some first");
  const auto places = at::randint(size_, {batch}, random, at::kLong);
  return {held_.observation.index_select(0, places), held_.action.index_select(0, places),
          held_.reward.index_select(0, places), held_.next.index_select(0, places),
          held_.terminated.index_select(0, places)};
}

}  // namespace remat::zoo
