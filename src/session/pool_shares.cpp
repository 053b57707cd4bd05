#include "session/pool_shares.h"

#include <algorithm>
#include <cstddef>

namespace remat {
namespace {

/// A step that takes part, and how far it has come on its curve.
struct Part {
  const PoolDemand* demand;
  size_t point = 0;
};

/// The way along a curve that saves the most by the byte and second, of those that cost at most `left` bytes.
struct Purchase {
  Part* part = nullptr;
  size_t to = 0;
  int64_t bytes = 0;
  double price = 0;
};

Purchase best_purchase(std::vector<Part>& parts, int64_t left) {
  Purchase best;
  for (Part& part : parts) {
    const auto& curve = part.demand->curve;
    const PoolDemand::Point& now = curve[part.point];
    for (size_t to = part.point + 1; to < curve.size(); ++to) {
      const int64_t bytes = curve[to].bytes - now.bytes;
      if (bytes > left) break;
      const double saved = (now.seconds - curve[to].seconds) / part.demand->step_seconds;
      const double price = saved / static_cast<double>(std::max<int64_t>(1, bytes));
      if (price > best.price) best = {&part, to, bytes, price};
    }
  }
  return best;
}

}  // namespace

int64_t share_of(const PoolDemand& own, const PoolDemands& others, int64_t room) {
  std::vector<Part> parts{{&own}};
  int64_t left = room - own.least();
  for (const auto& other : others) {
    if (!other->is_known() || other->least() > left) continue;
    parts.push_back({other.get()});
    left -= other->least();
  }
  for (Purchase next = best_purchase(parts, left); next.part != nullptr; next = best_purchase(parts, left)) {
    next.part->point = next.to;
    left -= next.bytes;
  }
  return own.curve[parts.front().point].bytes + left / static_cast<int64_t>(parts.size());
}

}  // namespace remat
