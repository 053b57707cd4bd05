#include "data/epoch_order.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include <remat/support/mix.h>

namespace remat::data {

int64_t EpochOrder::at(int64_t position) {
  if (const int64_t epoch = position / examples_; epoch != epoch_) {
    order_.resize(static_cast<size_t>(examples_));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    const uint64_t key = support::mix(support::mix(seed_) ^ static_cast<uint64_t>(epoch));
    for (size_t left = order_.size(); left > 1; --left) {  // Fisher and Yates
      std::swap(order_[left - 1], order_[support::mix(key ^ left) % left]);
    }
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(position % examples_)];
}

}  // namespace remat::data
