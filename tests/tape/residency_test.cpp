// The states of values, and what plain's account says of each.
#include "tape/residency.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace remat {
namespace {

StoragePtr storage_behind(const at::Tensor& tensor) { return StoragePtr::reclaim_copy(storage_of(tensor)); }

class ResidencyTest : public testing::Test {
 protected:
  /// A result of operation 0 that one saved tensor refers to and that only the record holds.
  ValueId saved_result() {
    const at::Tensor made = torch::ones({8});
    const ValueId id = values.add_result(made, /*producer=*/0, /*result=*/0, info);
    values.keep(id, storage_behind(made));
    values.add_saved(id, /*now=*/true);
    return id;
  }

  OperatorInfo info{c10::Dispatcher::singleton().findSchemaOrThrow("aten::sin", "")};
  StepCounts counts;
  Residency values{counts};
};

TEST_F(ResidencyTest, AnEvictedValueIsPlainsAloneUntilAReplayRestoresIt) {
  const ValueId id = saved_result();
  EXPECT_NE(values.alive(id), nullptr);
  EXPECT_EQ(values[id].account, PlainAccount::kSame);
  values.evict(id);
  EXPECT_EQ(values.alive(id), nullptr);
  EXPECT_EQ(values[id].account, PlainAccount::kPlainOnly);
  EXPECT_EQ(counts.evicted_bytes, 32);
  const at::Tensor again = torch::ones({8});
  values.restore(id, storage_behind(again));
  EXPECT_EQ(values.alive(id), storage_behind(again));
  EXPECT_EQ(values[id].account, PlainAccount::kSame);
  values.validate_homes();
}

TEST_F(ResidencyTest, WhatNoSavedTensorRefersToLeavesPlainsAccountWhenItIsEvicted) {
  const at::Tensor made = torch::ones({8});
  const ValueId id = values.add_result(made, 0, 0, info);
  values.keep(id, storage_behind(made));
  values.evict(id);
  EXPECT_EQ(values[id].account, PlainAccount::kReplaysOnly);
  values.restore(id, storage_behind(made));
  EXPECT_FALSE(values[id].kept) << "a replay holds it, and nothing else";
  EXPECT_EQ(values.find(storage_of(made)), id);
}

TEST_F(ResidencyTest, AValueThatWasOverwrittenIsRestoredForReplaysAlone) {
  const at::Tensor home = torch::ones({8});
  const ValueId before = values.add_result(home, 0, 0, info);
  values.add_saved(before, true);
  const ValueId after = values.supersede(before, storage_behind(home));
  EXPECT_EQ(values.latest(before), after) << "saved tensors see the new contents";
  EXPECT_EQ(values[before].needs.saved, 0U);
  EXPECT_EQ(values[after].needs.saved, 1U);
  EXPECT_EQ(values[after].needs.pending, 1U);
  EXPECT_EQ(values.alive(before), nullptr);
  EXPECT_EQ(values.find(storage_of(home)), after);
}

TEST_F(ResidencyTest, ACopyOfALeafIsForReplaysAndALostOneSaysWhy) {
  const at::Tensor input = torch::ones({8});
  const ValueId leaf = values.add(storage_behind(input), *input.unsafeGetTensorImpl());
  values.add_reader(leaf);
  const at::Tensor copy = input.clone();
  values.move_to_copy(leaf, storage_behind(copy));
  EXPECT_EQ(values.alive(leaf), storage_behind(copy));
  EXPECT_EQ(values[leaf].account, PlainAccount::kReplaysOnly);
  EXPECT_EQ(values.find(storage_of(input)), kNoId);
  values.move_to_copy(leaf, {});
  EXPECT_EQ(values.alive(leaf), nullptr);
  EXPECT_EQ(values[leaf].home.loss, Loss::kNoRoom);
}

TEST_F(ResidencyTest, RoundsCountTheSavedTensorsThatWillAsk) {
  const ValueId id = saved_result();
  values.add_saved(id, /*now=*/true);
  EXPECT_FALSE(values.note_unpacked(id));
  EXPECT_TRUE(values.note_unpacked(id));
  values.begin_round(id);
  EXPECT_EQ(values[id].needs.pending, 2U);
  EXPECT_EQ(values[id].needs.round, 2U);
  EXPECT_FALSE(values.remove_saved(id, /*pending=*/true));
  EXPECT_EQ(values[id].needs.pending, 1U);
  EXPECT_TRUE(values.remove_saved(id, true));
}

TEST_F(ResidencyTest, HandedOutMemoryIsNoSourceForReplays) {
  const at::Tensor made = torch::ones({8});
  const ValueId id = values.add_result(made, 0, 0, info);
  EXPECT_NE(values.readable(id), nullptr);
  values.hand_out(*storage_of(made));
  EXPECT_EQ(values.readable(id), nullptr) << "somebody may have written to it";
  EXPECT_NE(values.alive(id), nullptr) << "saved tensors see what is written there";
}

TEST_F(ResidencyTest, WithoutALedgerToCountThemInPackedContentsAreEvicted) {
  const ValueId id = saved_result();
  EXPECT_TRUE(values[id].form.element_bytes == 0);
  values.mark_packable(id, sizeof(float));
  EXPECT_TRUE(values.pack(id));
  EXPECT_EQ(values.alive(id), nullptr);
  EXPECT_EQ(counts.evicted_values, 1);
}

}  // namespace
}  // namespace remat
