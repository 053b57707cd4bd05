#include "export/placement.h"

#include <random>

#include <gtest/gtest.h>

namespace remat::exporting {
namespace {

Schedule with(std::vector<Instance> instances, size_t calls) {
  Schedule schedule;
  schedule.calls.resize(calls);
  schedule.instances = std::move(instances);
  return schedule;
}

TEST(Placement, ReusesWhatIsDead) {
  const Placement placed = place(with({{0, 40, 0, 1, -1}, {1, 60, 1, 2, -1}, {2, 40, 2, 3, -1}}, 4));
  EXPECT_EQ(placed.live_bytes, 100);
  EXPECT_EQ(placed.bytes, 100);
  EXPECT_EQ(placed.offset[0], placed.offset[2]);
}

TEST(Placement, PutsResultsOverTheirInputs) {
  const Placement placed = place(with({{0, 40, 0, 1, -1}, {1, 24, 1, 3, 0}, {2, 8, 3, 3, -1}}, 4));
  EXPECT_EQ(placed.offset[1], placed.offset[0]);
  EXPECT_EQ(placed.bytes, 48);  // the 24 keep all 40
}

TEST(Placement, OfNothingIsEmpty) { EXPECT_EQ(place(with({}, 0)).bytes, 0); }

TEST(Placement, OfRandomSchedulesIsSoundAndNearWhatIsAlive) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<Instance> instances;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<int32_t>(random() % 50), length = static_cast<int32_t>(random() % 12);
      instances.push_back({i, 4 * static_cast<int64_t>(1 + random() % 500), first, std::min(first + length, 49), -1});
    }
    const Placement placed = place(with(instances, 50));
    EXPECT_LE(placed.bytes, placed.live_bytes * 5 / 4);
    for (size_t i = 0; i < instances.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (instances[i].first > instances[j].last || instances[j].first > instances[i].last) continue;
        EXPECT_TRUE(placed.offset[i] >= placed.offset[j] + instances[j].bytes ||
                    placed.offset[j] >= placed.offset[i] + instances[i].bytes);
      }
    }
  }
}

}  // namespace
}  // namespace remat::exporting
