#include "data/batches.h"

#include <algorithm>
#include <numeric>

namespace remat::data {

std::vector<int64_t> Batches::of_step(int64_t step) {
  std::vector<int64_t> which;
  for (int64_t row = 0; row < size_; ++row) which.push_back(order_.at((step - 1) * size_ + row));
  return which;
}

std::vector<int64_t> Batches::in_order(int64_t index) const {
  const int64_t first = index * size_;
  std::vector<int64_t> which(static_cast<size_t>(std::min(size_, examples_ - first)));
  std::iota(which.begin(), which.end(), first);
  return which;
}

}  // namespace remat::data
