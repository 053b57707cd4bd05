#include "plan/eviction_choice.h"

#include <vector>

#include <gtest/gtest.h>

namespace remat::test {
namespace {

using OptionKind = EvictionOption::Kind;

struct ToyValue {
  int64_t bytes = 0;
  int64_t packed_bytes = 0;
  double seconds = 0;  ///< of the operator that makes it; that has the number of the value
  std::vector<uint32_t> inputs = {};
  bool alive = true, packed = false, moved = false, packable = true, movable = true;
  double move_seconds = 0;
};

struct ToyView {
  std::vector<ToyValue> values;
  std::vector<uint32_t> visits = std::vector<uint32_t>(values.size(), 0);
  std::vector<EvictionOption> evicted = {};

  bool is_alive(uint32_t v) const { return values[v].alive; }
  bool is_in_form(uint32_t v) const { return values[v].packed || values[v].moved; }
  double restore_seconds(uint32_t v) const {
    return values[v].moved ? values[v].move_seconds / 2 : kPackingCosts.in.compute * static_cast<double>(bytes(v));
  }
  double move_seconds(uint32_t v) const { return values[v].move_seconds; }
  int64_t bytes(uint32_t v) const { return values[v].bytes; }
  int64_t packed_bytes(uint32_t v) const { return values[v].packed_bytes; }
  static uint32_t producer(uint32_t v) { return v; }
  double seconds(uint32_t op) const { return values[op].seconds; }
  uint32_t& visit(uint32_t op) { return visits[op]; }
  template <class Each>
  void for_each_input(uint32_t op, Each each) const {
    for (const uint32_t input : values[op].inputs) each(input);
  }
  int64_t evict(const EvictionOption& option) {
    ToyValue& value = values[option.value];
    if (option.kind == OptionKind::kPack && !value.packable) return 0;
    if (option.kind == OptionKind::kMove && !value.movable) return 0;
    evicted.push_back(option);
    value.alive = false;
    value.packed = option.kind == OptionKind::kPack;
    value.moved = option.kind == OptionKind::kMove;
    return option.kind == OptionKind::kDropPacked ? value.packed_bytes
                                                  : value.bytes - (value.packed ? value.packed_bytes : 0);
  }

  std::vector<uint32_t> evicted_values() const {
    std::vector<uint32_t> all;
    for (const EvictionOption& option : evicted) all.push_back(option.value);
    return all;
  }
};

std::vector<EvictionOption> drops(const std::vector<uint32_t>& values) {
  std::vector<EvictionOption> options;
  for (const uint32_t v : values) options.push_back({OptionKind::kDrop, v});
  return options;
}

using ValueIds = std::vector<uint32_t>;

TEST(EvictionChoice, EvictsTheFewestSecondsPerByteFirstAndNoMoreThanAsked) {
  ToyView view{{{.bytes = 1000, .seconds = 3}, {.bytes = 1000, .seconds = 1}, {.bytes = 8000, .seconds = 4}}};
  EXPECT_EQ(EvictionChoice<ToyView>(view, 1).evict(drops({0, 1, 2}), 8500), 9000);
  EXPECT_EQ(view.evicted_values(), (ValueIds{2, 1}));
}

TEST(EvictionChoice, ReturnsWhatIsFreeWhereNoOptionIsLeft) {
  ToyView view{{{.bytes = 1000, .seconds = 3}}};
  EXPECT_EQ(EvictionChoice<ToyView>(view, 1).evict(drops({0}), 5000), 1000);
}

TEST(EvictionChoice, AddsOperatorsThatAreNotAliveUpToThoseThatAre) {
  // 2 is made of 1, which is not alive, and 1 of 0, which is.
  ToyView view{{{.bytes = 1000, .seconds = 100},
                {.bytes = 1000, .seconds = 5, .inputs = {0}, .alive = false},
                {.bytes = 1000, .seconds = 1, .inputs = {1}},
                {.bytes = 1000, .seconds = 5.5},
                {.bytes = 1000, .seconds = 6.5}}};
  EvictionChoice<ToyView>(view, 1).evict(drops({2, 3, 4}), 3000);
  EXPECT_EQ(view.evicted_values(), (ValueIds{3, 2, 4}));
}

TEST(EvictionChoice, OperatorsThatRunAnywayAddNothing) {
  ToyView view{{{.bytes = 1000, .seconds = 5, .alive = false},
                {.bytes = 8000, .seconds = 1, .inputs = {0}},
                {.bytes = 1000, .seconds = 1, .inputs = {0}},
                {.bytes = 1000, .seconds = 2}}};
  EvictionChoice<ToyView>(view, 1).evict(drops({1, 2, 3}), 10'000);
  EXPECT_EQ(view.evicted_values(), (ValueIds{1, 2, 3})) << "1 pays for 0, so 2 costs 1 second";
  ToyView paid = view;
  for (ToyValue& value : paid.values) value.alive = true;
  paid.evicted.clear();
  EvictionChoice<ToyView> choice(paid, 2);
  choice.pay(3);
  choice.evict(drops({1, 2, 3}), 1);
  EXPECT_EQ(paid.evicted_values(), (ValueIds{3})) << "its operator runs anyway";
}

TEST(EvictionChoice, PacksWhereThatIsCheaperAndDropsThePackedFormAtItsOwnPrice) {
  const ToyValue mask{.bytes = 1 << 20, .packed_bytes = 1 << 17, .seconds = 1};
  ToyView view{{mask}};
  EvictionChoice<ToyView> choice(view, 1);
  EXPECT_EQ(choice.evict({{OptionKind::kDrop, 0}, {OptionKind::kPack, 0}}, 1), (1 << 20) - (1 << 17));
  EXPECT_EQ(view.evicted.front().kind, OptionKind::kPack);
  EXPECT_EQ(choice.evict({{OptionKind::kDropPacked, 0}}, 1), 1 << 17);
  ToyView packed{{mask, {.bytes = 1 << 17, .seconds = 0.9}, {.bytes = 1 << 17, .seconds = 1.1}}};
  packed.values[0].alive = false;
  packed.values[0].packed = true;
  EvictionChoice<ToyView>(packed, 1).evict(
      {{OptionKind::kDropPacked, 0}, {OptionKind::kDrop, 1}, {OptionKind::kDrop, 2}}, 1 << 20);
  EXPECT_EQ(packed.evicted_values(), (ValueIds{1, 0, 2}));
  ToyView cheap{{mask}};
  cheap.values[0].seconds = 1e-9;
  EvictionChoice<ToyView>(cheap, 1).evict({{OptionKind::kDrop, 0}, {OptionKind::kPack, 0}}, 1);
  EXPECT_EQ(cheap.evicted.front().kind, OptionKind::kDrop);
}

TEST(EvictionChoice, DropsWhatTurnsOutNotToBePackable) {
  ToyView view{{{.bytes = 1 << 20, .packed_bytes = 1 << 17, .seconds = 1, .packable = false}}};
  ASSERT_EQ(EvictionChoice<ToyView>(view, 1).evict({{OptionKind::kDrop, 0}, {OptionKind::kPack, 0}}, 1), 1 << 20);
  EXPECT_EQ(view.evicted.front().kind, OptionKind::kDrop);
}

TEST(EvictionChoice, MovesWhereThatIsCheaperAndWhatReadsItIsRecomputedFromThere) {
  // 1 is made of 0.
  const ToyView view{{{.bytes = 1000, .seconds = 5, .move_seconds = 3},
                      {.bytes = 1000, .seconds = 1, .inputs = {0}, .move_seconds = 3},
                      {.bytes = 1000, .seconds = 2.6}}};
  ToyView moves = view;
  const std::vector<EvictionOption> options = {{OptionKind::kDrop, 0}, {OptionKind::kMove, 0}, {OptionKind::kDrop, 2}};
  EXPECT_EQ(EvictionChoice<ToyView>(moves, 1).evict(options, 2000), 2000);
  EXPECT_EQ(moves.evicted.back().kind, OptionKind::kMove);
  EvictionChoice<ToyView>(moves, 2).evict({{OptionKind::kDrop, 1}}, 1);
  EXPECT_EQ(moves.evicted_values(), (ValueIds{2, 0, 1}));

  ToyView read = view;
  read.values[0].alive = false;
  read.values[0].moved = true;
  EvictionChoice<ToyView>(read, 1).evict(drops({1, 2}), 1);
  EXPECT_EQ(read.evicted_values(), (ValueIds{1})) << "1 second, and 1.5 to read what it is made of";

  ToyView stuck = view;
  stuck.values[0].movable = false;
  EXPECT_EQ(EvictionChoice<ToyView>(stuck, 1).evict({{OptionKind::kDrop, 0}, {OptionKind::kMove, 0}}, 1000), 1000);
  EXPECT_EQ(stuck.evicted.front().kind, OptionKind::kDrop);
}

TEST(EvictionChoice, ThinsOutManyOptionsByTurns) {
  const std::vector<EvictionOption> few = drops(ValueIds(511, 7));
  std::vector<EvictionOption> options = few;
  thin_out(options, 1);
  EXPECT_EQ(options.size(), few.size());
  for (uint32_t turn = 0; turn < 6; ++turn) {
    options.clear();
    for (uint32_t v = 0; v < 800; ++v) options.push_back({OptionKind::kDrop, v});
    thin_out(options, turn);
    EXPECT_NEAR(static_cast<double>(options.size()), 266, 1);
    EXPECT_EQ(options[0].value, turn % 3);
    EXPECT_EQ(options[1].value, turn % 3 + 3);
  }
}

}  // namespace
}  // namespace remat::test
