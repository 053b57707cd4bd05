// The order in which a tape's values go to a file and come back, without a step.
#include "tape/moves.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/temporary_directory.h"
#include "tiers/file_target.h"

namespace remat::test {
namespace {

class MovesTest : public testing::Test {
 protected:
  static constexpr int64_t kElements = 1024, kAll = INT64_MAX;

  /// A result of operation 0 that one saved tensor refers to and that only the record holds; its elements are `number`.
  ValueId saved_result(float number) {
    const at::Tensor made = torch::full({kElements}, number);
    const ValueId id = values.add_result(made, /*producer=*/0, /*result=*/0, info);
    values.keep(id, StoragePtr::reclaim_copy(storage_of(made)));
    values.add_saved(id, /*now=*/true);
    return id;
  }
  std::shared_ptr<tiers::MoveTarget> target(int64_t limit_bytes) const {
    return std::make_shared<tiers::FileTarget>(std::make_shared<tiers::SpillFile>(directory.path(""), limit_bytes));
  }
  bool is_away(ValueId id) const { return values.alive(id) == nullptr && values[id].form.contents != nullptr; }
  /// The first element of what the file has of `id`.
  float read(ValueId id) {
    const at::Tensor memory = torch::empty({kElements});
    const auto moved = moves.take(id);
    moved->begin_read(StoragePtr::reclaim_copy(storage_of(memory)));
    EXPECT_TRUE(moved->wait_read()) << moved->error();
    moved->forget_coming();
    return memory[0].item<float>();
  }

  const TemporaryDirectory directory;
  OperatorInfo info{c10::Dispatcher::singleton().findSchemaOrThrow("aten::sin", "")};
  StepCounts counts;
  Residency values{counts};
  Moves moves{target(int64_t{16} << 20), Tier(), values, counts};
};

TEST_F(MovesTest, BytesGoWhenFourMoreAreLeavingOrMemoryRunsShort) {
  std::vector<ValueId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(saved_result(static_cast<float>(i)));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(moves.leave(ids[i]));
  EXPECT_FALSE(is_away(ids[0]));
  EXPECT_TRUE(moves.leave(ids[4]));
  EXPECT_TRUE(is_away(ids[0]));
  EXPECT_FALSE(is_away(ids[1]));
  EXPECT_EQ(moves.finish(kElements * 4 + 1), 2 * kElements * 4) << "as far as it takes";
  EXPECT_TRUE(is_away(ids[1]) && is_away(ids[2]));
  EXPECT_FALSE(is_away(ids[3]));
  EXPECT_EQ(moves.finish(kAll), 2 * kElements * 4);
  EXPECT_TRUE(is_away(ids[4]));
  EXPECT_EQ(moves.finish(kAll), 0);
  EXPECT_EQ(read(ids[0]), 0);
  EXPECT_EQ(read(ids[3]), 3);
  EXPECT_EQ(counts.moved_values, 5);
  EXPECT_EQ(counts.moved_bytes, 5 * kElements * 4);
}

TEST_F(MovesTest, WhatIsAskedForWhileItLeavesStays) {
  const ValueId a = saved_result(1), b = saved_result(2);
  moves.leave(a);
  moves.leave(b);
  EXPECT_TRUE(moves.note_used(b)) << "others are to come";
  EXPECT_FALSE(moves.note_used(b)) << "it is here";
  EXPECT_FALSE(values[b].is_in_use()) << "nothing holds its memory but the record";
  EXPECT_EQ(moves.finish(kAll), kElements * 4) << "the other";
  EXPECT_FALSE(is_away(b));
}

TEST_F(MovesTest, TheLastToLeaveComeBackFirst) {
  std::vector<ValueId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(saved_result(static_cast<float>(i)));
  for (const ValueId id : ids) moves.leave(id);
  moves.finish(kAll);
  EXPECT_EQ(moves.next_coming(), ids[3]);
  EXPECT_EQ(moves.next_coming(), ids[2]);
  EXPECT_EQ(moves.next_coming(), std::nullopt);
  const at::Tensor memory = torch::empty({kElements});
  moves.begin_to_come(ids[3], StoragePtr::reclaim_copy(storage_of(memory)));
  EXPECT_EQ(values[ids[3]].form.contents->bytes(), kElements * 4) << "of the step's memory";
  moves.defer(ids[2]);
  EXPECT_EQ(moves.next_coming(), ids[2]) << "it was put off";
  const auto moved = moves.take(ids[3]);
  EXPECT_TRUE(moved->wait_read());
  EXPECT_EQ(memory[0].item<float>(), 3);
  moved->forget_coming();
  moves.note_made(ids[2]);
  EXPECT_EQ(moves.next_coming(), ids[1]) << "a replay has made that one";
}

TEST_F(MovesTest, AValueThatIsReleasedIsInNoList) {
  const ValueId a = saved_result(1), b = saved_result(2);
  moves.leave(a);
  moves.leave(b);
  values.remove_saved(a, /*pending=*/true);
  values.release(a, /*for_replays=*/false);
  EXPECT_EQ(moves.finish(kAll), kElements * 4);
  EXPECT_EQ(moves.take(a), nullptr);
  EXPECT_EQ(moves.next_coming(), b);
  EXPECT_EQ(moves.next_coming(), std::nullopt);
}

TEST_F(MovesTest, WhatSomebodyHasAPointerToIsNotMoved) {
  const ValueId a = saved_result(1);
  values.hand_out(*values[a].kept);
  EXPECT_FALSE(moves.leave(a));
  EXPECT_EQ(counts.moved_values, 0);
}

TEST_F(MovesTest, WithoutRoomItIsEvictedToBeRecomputed) {
  Moves full(target(4096), Tier(), values, counts);
  const ValueId a = saved_result(1), b = saved_result(2);
  EXPECT_TRUE(full.leave(a));
  EXPECT_TRUE(full.leave(b));
  EXPECT_EQ(values.alive(b), nullptr);
  EXPECT_EQ(values[b].form.contents, nullptr);
  EXPECT_EQ(counts.failed_moves, 1);
  EXPECT_NE(counts.move_error.find("the limit is 4096 bytes"), std::string::npos) << counts.move_error;
}

}  // namespace
}  // namespace remat::test
