#include "tiles/rows.h"

#include <algorithm>

#include <ATen/ops/mm.h>

namespace remat::tiles {

void add_products(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, int64_t part) {
  for (int64_t begin = 0; begin < a.size(0); begin += part) {
    const int64_t count = std::min(part, a.size(0) - begin);
    const at::Tensor left = a.narrow(0, begin, count).t(), right = b.narrow(0, begin, count);
    if (sum.defined()) {
      sum.addmm_(left, right);
    } else {
      sum = at::mm(left, right);
    }
  }
}

}  // namespace remat::tiles
