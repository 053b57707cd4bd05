// bench/halving.h -- the largest size that fits, found as without graphs: by real steps, halving until one fits, then
// between that and the last that did not. What fit() is compared with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace remat::bench {

/// The largest of ascending `sizes` that fits; 0 where none does. Begins at the largest.
inline int64_t largest_by_halving(const std::vector<int64_t>& sizes, const std::function<bool(int64_t size)>& fits) {
  int64_t best = 0;
  auto good = sizes.begin(), bad = sizes.end();  // all before `good` fit, none from `bad` on does
  for (auto tried = sizes.end() - 1;;) {
    if (fits(*tried)) {
      best = *tried;
      good = tried + 1;
    } else {
      bad = tried;
    }
    if (good >= bad) return best;
    tried = best > 0 ? good + (bad - good - 1) / 2
                     : std::max(sizes.begin(), std::upper_bound(sizes.begin(), bad, *bad / 2) - 1);
  }
}

}  // namespace remat::bench
