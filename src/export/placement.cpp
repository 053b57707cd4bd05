#include "export/placement.h"

#include <algorithm>
#include <random>

namespace remat::exporting {
namespace {

constexpr int kTries = 2000;
constexpr int64_t kMostFits = 4'000'000;  // pairs looked at, so that large schedules end as well

/// Instances that lie over each other: one block of memory.
struct Block {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
};

class Placer {
 public:
  explicit Placer(const Schedule& schedule) : schedule_(schedule) {
    std::vector<int32_t> block_of(schedule.instances.size(), -1);
    for (size_t i = 0; i < schedule.instances.size(); ++i) {
      const Instance& own = schedule.instances[i];
      if (own.bytes == 0) continue;
      if (own.over >= 0) {
        block_of[i] = block_of[own.over];
        Block& block = blocks_[block_of[i]];
        block.last = std::max(block.last, own.last);
      } else {
        block_of[i] = static_cast<int32_t>(blocks_.size());
        blocks_.push_back({own.bytes, own.first, own.last});
      }
    }
    block_of_ = std::move(block_of);
  }

  Placement run() {
    Placement result;
    result.live_bytes = most_alive();
    std::vector<int32_t> best = orders_best(result.live_bytes);
    std::mt19937 random(1);
    int64_t looked = 0;
    for (int i = 0; i < kTries && best_top_ > result.live_bytes && looked < kMostFits; ++i) {
      std::vector<int32_t> order = best;
      const size_t from = random() % order.size(), to = random() % order.size();
      const int32_t moved = order[from];
      order.erase(order.begin() + static_cast<int64_t>(from));
      order.insert(order.begin() + static_cast<int64_t>(to), moved);
      looked += static_cast<int64_t>(order.size() * order.size());
      if (try_order(order)) best = std::move(order);
    }
    result.bytes = best_top_;
    for (const int32_t block : block_of_) result.offset.push_back(block < 0 ? 0 : best_[block]);
    return result;
  }

 private:
  int64_t most_alive() const {
    std::vector<int64_t> alive(schedule_.calls.size() + 1, 0);
    for (const Block& block : blocks_) {
      for (int32_t c = block.first; c <= block.last; ++c) alive[c] += block.bytes;
    }
    return *std::ranges::max_element(alive);
  }

  std::vector<int32_t> orders_best(int64_t goal) {
    const auto size = [](const Block& b) { return -b.bytes; };
    const auto area = [](const Block& b) { return -b.bytes * (b.last - b.first + 1); };
    const auto begin = [](const Block& b) { return int64_t{b.first}; };
    const auto life = [](const Block& b) { return int64_t{b.first} - b.last; };
    std::vector<int32_t> best;
    const auto consider = [&](auto key) {
      std::vector<int32_t> order(blocks_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
      std::ranges::stable_sort(order, {}, [&](int32_t b) { return key(blocks_[b]); });
      if (best.empty() || best_top_ > goal) {
        if (try_order(order) || best.empty()) best = std::move(order);
      }
    };
    consider(size);
    consider(area);
    consider(begin);
    consider(life);
    return best;
  }

  /// Puts each block, in this order, into the smallest gap between those placed before that are alive with it. Keeps
  /// the places, and returns true, where the arena is not larger than the best one.
  bool try_order(const std::vector<int32_t>& order) {
    std::vector<int64_t> offset(blocks_.size(), 0);
    std::vector<int32_t> placed;
    std::vector<std::pair<int64_t, int64_t>> busy;
    int64_t top = 0;
    for (const int32_t b : order) {
      const Block& block = blocks_[b];
      busy.clear();
      for (const int32_t other : placed) {
        const Block& o = blocks_[other];
        if (o.last >= block.first && o.first <= block.last) busy.emplace_back(offset[other], offset[other] + o.bytes);
      }
      std::ranges::sort(busy);
      int64_t at = 0, smallest = INT64_MAX;
      for (const auto& [begin, end] : busy) {
        if (begin - at >= block.bytes && begin - at < smallest) {
          smallest = begin - at;
          offset[b] = at;
        }
        at = std::max(at, end);
      }
      if (smallest == INT64_MAX) offset[b] = at;
      top = std::max(top, offset[b] + block.bytes);
      if (best_top_ >= 0 && top > best_top_) return false;
      placed.push_back(b);
    }
    best_top_ = top;
    best_ = std::move(offset);
    return true;
  }

  const Schedule& schedule_;
  std::vector<Block> blocks_;
  std::vector<int32_t> block_of_;  // by instance
  std::vector<int64_t> best_;      // by block: its offset
  int64_t best_top_ = -1;
};

}  // namespace

Placement place(const Schedule& schedule) { return Placer(schedule).run(); }

}  // namespace remat::exporting
