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

void ReplayBuffer::save(torch::serialize::OutputArchive& archive) const {
  const auto first = [&](const at::Tensor& all) { return all.narrow(0, 0, size_).clone(); };  // not its whole storage
  zoo::save(
      {first(held_.observation), first(held_.action), first(held_.reward), first(held_.next), first(held_.terminated)},
      archive);
  archive.write("next_place", c10::IValue(next_place_));
}

void ReplayBuffer::load(torch::serialize::InputArchive& archive) {
  const Transitions saved = load_transitions(archive);
  c10::IValue next_place;
  archive.read("next_place", next_place);
  next_place_ = next_place.toInt();
  size_ = saved.action.size(0);
  const auto fill = [&](const at::Tensor& all, const at::Tensor& first) { all.narrow(0, 0, size_).copy_(first); };
  fill(held_.observation, saved.observation);
  fill(held_.action, saved.action);
  fill(held_.reward, saved.reward);
  fill(held_.next, saved.next);
  fill(held_.terminated, saved.terminated);
}

void save(const Transitions& transitions, torch::serialize::OutputArchive& archive) {
  archive.write("observation", transitions.observation);
  archive.write("action", transitions.action);
  archive.write("reward", transitions.reward);
  archive.write("next", transitions.next);
  archive.write("terminated", transitions.terminated);
}

Transitions load_transitions(torch::serialize::InputArchive& archive) {
  Transitions transitions;
  archive.read("observation", transitions.observation);
  archive.read("action", transitions.action);
  archive.read("reward", transitions.reward);
  archive.read("next", transitions.next);
  archive.read("terminated", transitions.terminated);
  return transitions;
}

}  // namespace remat::zoo
