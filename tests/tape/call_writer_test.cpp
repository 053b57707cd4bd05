// A tape that is driven by calls as data: no operator runs, and nothing is dispatched.
#include "tape/call_writer.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

namespace remat {
namespace {

constexpr int64_t kElements = 16;

class CallWriterTest : public testing::Test {
 protected:
  using Values = std::vector<c10::IValue>;

  CallWriterTest() { tape.program.begin_settings(/*has_streams=*/false); }

  /// A tensor in memory of its own.
  static at::Tensor tensor(int64_t elements = kElements) {
    const auto bytes = static_cast<size_t>(elements) * sizeof(float);
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                         c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true);
    if (bytes > 0) std::memset(storage->mutable_data(), 0, bytes);
    return over(storage, 0, elements);
  }
  /// One that looks at memory of another.
  static at::Tensor slice(const at::Tensor& whole, int64_t first, int64_t elements) {
    at::Tensor part = over(StoragePtr::reclaim_copy(storage_of(whole)), first, elements);
    part.unsafeGetTensorImpl()->set_version_counter(whole.unsafeGetTensorImpl()->version_counter());
    return part;
  }

  static c10::ArrayRef<const c10::IValue> ref(const Values& values) {
    return c10::ArrayRef<const c10::IValue>(values.data(), values.size());
  }

  static const OperatorInfo& info(const std::string& name, const std::string& overload = "") {
    return *operator_info(c10::OperatorName("aten::" + name, overload));
  }

  void begin(const OperatorInfo& called, const Values& inputs) {
    CallSite site;
    site.info = &called;
    site.inputs = ref(inputs);
    site.generator = GeneratorRecord();
    begin(std::move(site));
  }
  void begin(CallSite site) {
    const std::lock_guard lock(tape.mutex);
    calls.begin(std::move(site));
  }
  void end(const Values& outputs, bool failed = false) {
    CallEnd over;
    over.outputs = ref(outputs);
    over.failed = failed;
    end(std::move(over));
  }
  void end(CallEnd over) {
    const std::lock_guard lock(tape.mutex);
    calls.end(std::move(over));
    if (calls.is_idle()) tape.validate();
  }
  void call(const OperatorInfo& called, const Values& inputs, const Values& outputs) {
    begin(called, inputs);
    end(outputs);
  }
  /// What an operator that writes in place does to its tensor.
  static void write(const at::Tensor& written) { written.unsafeGetTensorImpl()->bump_version(); }

  const Value& value_of(const at::Tensor& t) { return tape.values[id_of(t)]; }
  ValueId id_of(const at::Tensor& t) { return tape.values.find(storage_of(t)); }

  Tape tape;
  CallWriter calls{tape};

 private:
  static at::Tensor over(StoragePtr storage, int64_t first, int64_t elements) {
    auto impl = c10::make_intrusive<at::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
    impl->set_sizes_contiguous({elements});
    impl->set_storage_offset(first);
    return at::Tensor(std::move(impl));
  }
};

TEST_F(CallWriterTest, AResultIsMadeByItsCallFromWhatItRead) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  call(info("sin"), {x}, {y});
  EXPECT_TRUE(value_of(x).is_leaf());
  EXPECT_TRUE(value_of(x).kept) << "a replay reads it";
  EXPECT_EQ(value_of(x).needs.readers, 1U);
  EXPECT_EQ(value_of(y).producer, 0U);
  EXPECT_FALSE(value_of(y).kept) << "nothing has saved it";
  EXPECT_EQ(tape.program.size(), 1U);
}

TEST_F(CallWriterTest, ACallThatFailedOrMayDrawUnseenMakesLeaves) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  begin(info("sin"), {x});
  end({y}, /*failed=*/true);
  CallSite unknown;
  const std::vector<c10::IValue> inputs = {x};
  unknown.info = &info("sin");
  unknown.inputs = ref(inputs);
  begin(std::move(unknown));  // without a generator that it may draw from, or the knowledge that there is none
  end({y});
  EXPECT_EQ(tape.program.size(), 0U);
  EXPECT_EQ(id_of(y), kNoId);
  call(info("exp"), {y}, {tensor()});
  EXPECT_TRUE(value_of(y).is_leaf());
}

TEST_F(CallWriterTest, ACallUnderADispatchModeIsNotWritten) {
  const at::Tensor x = tensor();
  CallSite site;
  const std::vector<c10::IValue> inputs = {x};
  site.info = &info("sin");
  site.inputs = ref(inputs);
  site.generator = GeneratorRecord();
  site.under_mode = true;
  begin(std::move(site));
  end({tensor()});
  EXPECT_EQ(tape.program.size(), 0U);
  EXPECT_EQ(tape.counts.under_mode, 1);
}

TEST_F(CallWriterTest, AViewIsNoValueOfItsOwn) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  call(info("sin"), {x}, {y});
  call(info("exp"), {slice(y, 4, 4)}, {tensor(4)});
  EXPECT_EQ(tape.values.size(), 3U);
  EXPECT_EQ(value_of(y).needs.readers, 1U);
}

TEST_F(CallWriterTest, AWriteInPlaceMakesAnotherValue) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  call(info("sin"), {x}, {y});
  const ValueId before = id_of(y);
  begin(info("exp_"), {y});
  write(y);
  end({y});
  EXPECT_NE(id_of(y), before);
  EXPECT_EQ(value_of(y).producer, 1U);
  EXPECT_GE(value_of(y).result, Value::kWritten);
  EXPECT_EQ(tape.values.alive(before), nullptr) << "a replay makes it";
}

TEST_F(CallWriterTest, AWriteToALeafThatIsReadCopiesItFirst) {
  const at::Tensor x = tensor();
  call(info("sin"), {x}, {tensor()});
  tape.values.want(id_of(x) + 1);  // else nobody could ask for what reads the leaf
  const ValueId leaf = id_of(x);
  begin(info("exp_"), {x});
  write(x);
  end({x});
  EXPECT_EQ(tape.program.size(), 1U) << "it is not recorded";
  ASSERT_TRUE(tape.values[leaf].kept);
  EXPECT_NE(tape.values[leaf].kept.get(), storage_of(x));
  EXPECT_EQ(tape.values[leaf].account, PlainAccount::kReplaysOnly);
}

TEST_F(CallWriterTest, WhatAnOuterCallReturnsOfAnInnerOneIsTheInnersResult) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  begin(info("dropout"), {x, 0.5, true});
  call(info("sin"), {x}, {y});
  end({y});
  EXPECT_EQ(tape.program.size(), 1U);
  EXPECT_EQ(tape.program[0].info, &info("sin"));
}

TEST_F(CallWriterTest, AnOuterCallIsNotRepeatedWhereAnInnerOneMustRunOnce) {
  const at::Tensor x = tensor();
  begin(info("sin"), {x});
  calls.keep_running_calls();
  end({tensor()});
  EXPECT_EQ(tape.program.size(), info("sin").is_declared_repeatable() ? 1U : 0U);
}

TEST_F(CallWriterTest, WhatAFactoryLeavesUndefinedIsALeafUnlessOperatorsFillIt) {
  const std::vector<c10::IValue> sizes = {c10::IValue(std::vector<int64_t>{kElements}), {}, {}, {}, {}, {}};
  const at::Tensor read_as_it_is = tensor();
  call(info("empty", "memory_format"), sizes, {read_as_it_is});
  EXPECT_EQ(value_of(read_as_it_is).origin, Origin::kUndefined);
  call(info("sin"), {read_as_it_is}, {tensor()});
  EXPECT_TRUE(value_of(read_as_it_is).is_leaf());
  const at::Tensor filled = tensor();
  const at::Tensor source = tensor();
  call(info("empty", "memory_format"), sizes, {filled});
  for (const int64_t first : {0, 8}) {
    const at::Tensor half = slice(filled, first, 8);
    begin(info("copy_"), {half, slice(source, first, 8), false});
    write(half);
    end({half});
  }
  call(info("sin"), {filled}, {tensor()});
  EXPECT_FALSE(value_of(filled).is_leaf());
  EXPECT_TRUE(value_of(filled).is_recomputable());
}

TEST_F(CallWriterTest, AResultOfAnotherSizeThanItsMemoryWasIsNotWritten) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  call(info("sin"), {x}, {y});
  begin(info("exp_"), {y});
  storage_of(y)->set_nbytes(8);
  write(y);
  end({y});
  EXPECT_EQ(tape.program.size(), 1U);
  EXPECT_TRUE(value_of(y).is_leaf());
}

class Saved final : public UnboundSave {
 public:
  void bind() override { bound = true; }
  bool bound = false;
};

TEST_F(CallWriterTest, WhatIsSavedWhileItsCallRunsIsBoundWhenThatEnds) {
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  Saved made;
  Saved forgotten;
  Saved known;
  EXPECT_FALSE(calls.bind_later(known, *x.unsafeGetTensorImpl())) << "no call is running";
  begin(info("sin"), {x});
  EXPECT_FALSE(calls.bind_later(known, *x.unsafeGetTensorImpl())) << "it was there before";
  EXPECT_TRUE(calls.bind_later(made, *y.unsafeGetTensorImpl()));
  EXPECT_TRUE(calls.bind_later(forgotten, *y.unsafeGetTensorImpl()));
  calls.forget(forgotten);
  EXPECT_FALSE(made.bound);
  end({y});
  EXPECT_TRUE(made.bound);
  EXPECT_FALSE(forgotten.bound);
}

TEST_F(CallWriterTest, AContradictedOperatorsResultsAreHeld) {
  // One that no other test calls: from now on it is not repeated in this process.
  const at::Tensor x = tensor();
  const at::Tensor y = tensor();
  call(info("erfinv"), {x}, {y});
  tape.add_saved(id_of(y), StoragePtr::reclaim_copy(storage_of(y)));
  begin(info("erfinv"), {x});
  const at::Tensor again = tensor();
  const std::vector<c10::IValue> outputs = {again};
  CallEnd over;
  over.outputs = ref(outputs);
  over.contradictions.push_back({StoragePtr::reclaim_copy(storage_of(x)), /*changed=*/true});
  end(std::move(over));
  EXPECT_TRUE(info("erfinv").contradicted);
  EXPECT_TRUE(value_of(y).is_leaf());
  EXPECT_TRUE(value_of(y).kept);
  EXPECT_EQ(id_of(again), kNoId);
}

TEST_F(CallWriterTest, APolicysResultsAreEvictedOnceNobodyElseHasThem) {
  const at::Tensor x = tensor();
  at::Tensor y = tensor();
  begin(info("sin"), {x});
  const std::vector<c10::IValue> outputs = {y};
  CallEnd over;
  over.outputs = ref(outputs);
  over.evicted_by_policy = true;
  end(std::move(over));
  const ValueId id = id_of(y);
  tape.add_saved(id, StoragePtr::reclaim_copy(storage_of(y)));
  tape.drop_idle();
  EXPECT_TRUE(tape.values[id].kept) << "its user has it";
}

}  // namespace
}  // namespace remat
