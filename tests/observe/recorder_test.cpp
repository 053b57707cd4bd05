// What ends up on the tape, seen from inside.
#include "observe/recorder.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/recording.h"

namespace remat {
namespace {

using test::Recording;
using Names = std::vector<std::string>;

TEST(Recorder, SeesPartsOfCompositesAndSkipsViews) {
  const auto x = torch::randn({4, 4});
  const auto w = torch::randn({4, 4});
  Recording recording;
  const auto y = at::linear(x, w).view({2, 8}).transpose(0, 1);
  EXPECT_EQ(recording.names(), (Names{"aten::mm"}));
  recording.tape().validate();
}

TEST(Recorder, RecordsAutocastsCastsAndTheInnerCallOnce) {
  const auto x = torch::randn({4, 4});
  const auto w = torch::randn({4, 4});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  Recording recording;
  const auto y = at::mm(x, w);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(recording.names(), (Names{"aten::_to_copy", "aten::_to_copy", "aten::mm"}));
}

TEST(Recorder, AnInPlaceWriteMakesANewValueOfTheSameStorage) {
  const auto x = torch::randn({4});
  Recording recording;
  auto y = x + 1;
  const auto* const storage = y.storage().unsafeGetStorageImpl();
  const ValueId before = recording.tape().values.find(storage);
  y.mul_(2);
  const ValueId after = recording.tape().values.find(storage);
  EXPECT_NE(before, after);
  EXPECT_TRUE(recording.tape().values[after].is_recomputable());
  EXPECT_EQ(recording.tape().values.alive(before), nullptr);
  EXPECT_EQ(recording.names(), (Names{"aten::add", "aten::mul_"}));
}

TEST(Recorder, ResultsThatDependOnUnfilledMemoryAreLeaves) {
  const auto a = torch::randn({4, 3}).requires_grad_();
  Recording recording;
  const auto solution = std::get<0>(at::linalg_lstsq(a * 1, torch::randn({4, 2})));
  const auto y = solution.sin();
  const ValueId id = recording.tape().values.find(solution.storage().unsafeGetStorageImpl());
  ASSERT_NE(id, kNoId);
  EXPECT_FALSE(recording.tape().values[id].is_recomputable());
}

TEST(Recorder, ChangingSizesInPlaceIsNoWrite) {
  auto input = torch::randn({4, 4});
  Recording recording;
  auto y = input + 1;
  const ValueId made = recording.tape().values.find(y.storage().unsafeGetStorageImpl());
  const ValueId leaf = recording.tape().values.find(input.storage().unsafeGetStorageImpl());
  y.unsqueeze_(0).transpose_(1, 2).squeeze_(0).t_();
  input.unsqueeze_(0);
  EXPECT_EQ(recording.names(), (Names{"aten::add"}));
  EXPECT_NE(recording.tape().values.alive(made), nullptr);
  EXPECT_FALSE(recording.tape().values[made].is_written_unseen());
  EXPECT_FALSE(recording.tape().values[leaf].is_written_unseen());
  const auto* const data = y.mutable_data_ptr<float>();
  y.detach().add_(1);
  y.squeeze_(0);  // after a write that was seen
  EXPECT_EQ(y.const_data_ptr<float>(), data);
  const ValueId after = recording.tape().values.find(y.storage().unsafeGetStorageImpl());
  EXPECT_NE(after, made);
  EXPECT_FALSE(recording.tape().values[after].is_written_unseen());
  recording.tape().validate();
}

TEST(Recorder, AWriteToALeafCopiesItOnlyIfAReplayCouldReadIt) {
  auto parameter = torch::randn({4}).requires_grad_();
  auto unread = torch::randn({4});
  Recording recording;
  const auto y = (parameter * parameter + unread).exp();  // exp saves its result, whose recipe reads both
  const auto* const storage = unread.storage().unsafeGetStorageImpl();
  const ValueId leaf = recording.tape().values.find(storage);
  const auto old = unread.clone();
  unread.add_(1);
  EXPECT_EQ(recording.tape().values.find(storage), kNoId) << "the storage holds something else now";
  const StoragePtr copy = recording.tape().values.alive(leaf);
  ASSERT_NE(copy, nullptr);
  EXPECT_NE(copy.get(), storage);
  EXPECT_EQ(std::memcmp(copy->data(), old.const_data_ptr(), copy->nbytes()), 0);
}

TEST(Recorder, InAnOpaqueRegionNothingIsRecordedAndWritesAreSeen) {
  const auto x = torch::randn({4});
  Recording recording;
  Tape& tape = recording.tape();
  auto y = x + 1;
  Recorder::current()->begin_opaque();
  const auto inside = y * 2;
  y.mul_(3);
  Recorder::current()->end_opaque();
  const auto after = y.exp();
  EXPECT_EQ(recording.names(), (Names{"aten::add", "aten::exp"}));
  EXPECT_EQ(tape.values.find(inside.storage().unsafeGetStorageImpl()), kNoId);
  EXPECT_FALSE(tape.values[tape.values.find(y.storage().unsafeGetStorageImpl())].is_recomputable());
  EXPECT_TRUE(tape.values[tape.values.find(after.storage().unsafeGetStorageImpl())].is_recomputable());
  tape.validate();
}

TEST(Recorder, NotesSettingsWhenTheyChange) {
  const auto x = torch::randn({4});
  const int before = at::get_num_threads();
  Recording recording;
  const auto a = x + 1;
  const auto b = x + 2;
  at::set_num_threads(before + 1);
  const auto c = x + 3;
  at::set_num_threads(before);
  const Tape& tape = recording.tape();
  EXPECT_EQ(tape.program[1].settings, 0U);
  EXPECT_EQ(tape.program[2].settings, 1U);
  EXPECT_EQ(tape.program.settings(tape.program[1]).threads.kernels, before);
  EXPECT_EQ(tape.program.settings(tape.program[2]).threads.kernels, before + 1);
}

TEST(Recorder, ResultsOfOperatorsThatThrowLeaveNoTrace) {
  const auto x = torch::randn({4, 4});
  Recording recording;
  EXPECT_THROW(at::mm(x, torch::randn({3, 3})), c10::Error);
  EXPECT_TRUE(Recorder::current()->is_idle());
  const auto y = x + 1;
  EXPECT_EQ(recording.names().back(), "aten::add");
  recording.tape().validate();
}

TEST(Recorder, RandomOperatorsKeepTheirGeneratorsState) {
  Recording recording;
  const auto generator = at::detail::createCPUGenerator(3);
  const auto x = torch::empty({8}).uniform_(0, 1, generator);
  const Program& program = recording.tape().program;
  const OperationId draw = static_cast<OperationId>(program.size() - 1);
  ASSERT_NE(program[draw].generator, kNoId);
  EXPECT_EQ(program.generator(program[draw]).generator, generator);
}

bool is_recomputable(Recording& recording, const at::Tensor& tensor) {
  const ValueId id = recording.tape().values.find(storage_of(tensor));
  return id != kNoId && recording.tape().values[id].is_recomputable();
}

TEST(Recorder, RepeatsFactoriesUnlessTheirResultsWereFilledThroughAPointer) {
  constexpr int64_t kCount = 5000;  // a generator's state takes fewer bytes
  const auto like = torch::randn({kCount});
  const std::function<at::Tensor()> factories[] = {
      [] { return torch::arange(kCount, torch::kFloat); },  // outside of autograd ...
      [] { return at::arange(kCount, torch::kFloat); },     // ... and as Python calls it
      [] { return torch::zeros({kCount}); },
      [] { return at::zeros({kCount}); },
      [] { return torch::randn({kCount}); },
      [] { return at::randn({kCount}); },
      [] { return at::rand({kCount}); },
      [] { return at::full({kCount}, 2.5); },
      [&] { return at::zeros_like(like); },
      [&] { return like.new_full({kCount}, 2.0); }};
  for (size_t i = 0; i < std::size(factories); ++i) {
    SCOPED_TRACE("factory " + std::to_string(i));
    Recording recording;
    const auto untouched = factories[i]();
    const auto filled = factories[i]();
    EXPECT_FALSE(is_recomputable(recording, untouched)) << "a pointer may still fill it";
    filled.data_ptr<float>()[kCount - 1] = 7;
    const auto read = untouched + filled;
    EXPECT_TRUE(is_recomputable(recording, untouched));
    EXPECT_FALSE(is_recomputable(recording, filled));
  }
}

TEST(Recorder, HoldsWhatAFactoryDrewWhereTheGeneratorsStateIsLarger) {
  Recording recording;
  const auto few = at::randn({10});
  const auto read = few + 1;
  EXPECT_FALSE(is_recomputable(recording, few));
}

TEST(Recorder, FillsOfEmptyTensorsAreRepeatedAndEmptyTensorsAreNot) {
  const auto like = torch::randn({10});
  Recording recording;
  const auto mask = at::empty_like(like).bernoulli_(0.5);
  EXPECT_TRUE(is_recomputable(recording, mask));
  const auto empty = at::empty_like(like);
  const auto read = empty + 1;
  EXPECT_FALSE(is_recomputable(recording, empty));
}

TEST(Recorder, WritesToPartsOfWhatAFactoryFilledAreRepeated) {
  const auto x = torch::randn({4});
  Recording recording;
  const auto padded = at::zeros({8});
  padded.slice(0, 0, 4).copy_(x);
  EXPECT_TRUE(is_recomputable(recording, padded));
}

TEST(Recorder, AFilledTensorThatIsWrittenThroughAPointerBetweenTwoReadsIsHeldFromThenOn) {
  Recording recording;
  const auto table = at::zeros({8});
  const auto first = table + 1;
  EXPECT_TRUE(is_recomputable(recording, table));
  table.data_ptr<float>()[3] = 7;
  const auto second = table + 1;
  EXPECT_FALSE(is_recomputable(recording, table));
}

TEST(Recorder, LooksAtInputsAndNotAtParametersOrTheirViews) {
  const auto x = torch::randn({4, 4});
  const auto weight = torch::randn({4, 4}).requires_grad_();
  Recording recording;
  const auto y = torch::linear(x, weight) + weight.slice(0, 0, 2).repeat({2, 1}) + weight;
  const Tape& tape = recording.tape();
  const ValueId input = tape.values.find(x.storage().unsafeGetStorageImpl());
  const ValueId parameter = tape.values.find(weight.storage().unsafeGetStorageImpl());
  size_t seen = 0;
  tape.program.for_each_tensor_from(0, [&](const TensorArgument& argument) {
    const bool is_parameter = argument.value == parameter;
    if (is_parameter || argument.value == input) {
      EXPECT_EQ(argument.checksum == 0, is_parameter);
    }
    seen += is_parameter ? 1 : 0;
  });
  EXPECT_GE(seen, 3U);
}

TEST(Recorder, CollectReleasesWhatNoSavedTensorReaches) {
  auto parameter = torch::randn({4}).requires_grad_();
  Recording recording;
  {
    const auto y = parameter.exp().sum();
    recording.tape().collect();
    EXPECT_EQ(recording.names().front(), "aten::exp");
  }
  recording.tape().collect();
  for (const auto& operation : recording.tape().program) EXPECT_EQ(operation.info, nullptr);
  for (ValueId id = 0; id < recording.tape().values.size(); ++id) EXPECT_EQ(recording.tape().values[id].kept, nullptr);
}

}  // namespace
}  // namespace remat
