// One recorded operator is called again.
#include "replay/operator_call.h"

#include <optional>

#include <ATen/ops/native_batch_norm.h>
#include <torch/library.h>

#include "device/device.h"
#include "operators/special_operator.h"
#include "support/compare.h"
#include "support/expect_error.h"
#include "support/recording.h"

namespace remat::test {
namespace {

/// The last operator of a recording, whose inputs are there.
class LastCall {
 public:
  explicit LastCall(const Recording& recording) : tape_(recording.tape()) {
    id_ = static_cast<OperationId>(tape_.program.size() - 1);
    tape_.program.for_each_value(tape_.program[id_], [&](ValueId read) {
      held[read].storage = tape_.values.readable(read);
      ++held[read].uses;
    });
  }
  OperatorCall run() {
    const Recorder::Suspension unseen;
    std::optional<OperatorCall> call;
    {
      const std::lock_guard lock(tape_.mutex);
      call.emplace(tape_, id_, held);
    }
    call->run();
    return std::move(*call);
  }

  HeldStorages held;

 private:
  Tape& tape_;
  OperationId id_ = 0;
};

TEST(OperatorCall, GivesTheSameBits) {
  const auto a = torch::randn({4, 8}), b = torch::randn({3, 8});
  const Recording recording;
  const at::Tensor y = a.mm(b.t());
  EXPECT_TRUE(same_bits(LastCall(recording).run().results().at(0).toTensor(), y));
}

TEST(OperatorCall, DrawsTheSameNumbersAndLeavesTheGeneratorAlone) {
  const Recording recording;
  const at::Tensor y = torch::empty({64}).bernoulli_(0.5);
  const at::Tensor later = torch::rand({3}, at::TensorOptions().device(at::kCPU));
  LastCall call(recording);  // rand
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_TRUE(same_bits(call.run().results().at(0).toTensor(), later));
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

/// The old contents are written to where nobody else reads them, else a copy of them.
TEST(OperatorCall, WritesInPlaceOrToACopy) {
  const auto x = torch::randn({16});
  for (const uint32_t uses : {1U, 2U}) {
    const Recording recording;
    at::Tensor y = x + 1;
    const at::Tensor before = [&] {
      const Recorder::Suspension unseen;
      return y.clone();
    }();
    y.mul_(3);
    LastCall last(recording);
    StoragePtr old = device::copy_of(*storage_of(before));
    const c10::StorageImpl* const address = old.get();
    auto& held = last.held.begin()->second;
    held.storage = std::move(old);
    held.uses = uses;
    const OperatorCall call = last.run();
    EXPECT_TRUE(same_bits(call.results().at(0).toTensor(), y));
    EXPECT_EQ(call.written().at(0).get() == address, uses == 1);
  }
}

TEST(OperatorCall, TakesAShortcutWhereItsResultsAreThere) {
  check_special_operators();
  const auto x = torch::randn({8, 4, 3});
  const Recording recording;
  auto [y, mean, deviation] = at::native_batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5);
  LastCall last(recording);
  EXPECT_EQ(last.run().results().at(1).toTensor().data_ptr(), mean.data_ptr()) << "repeated from its statistics";
  EXPECT_TRUE(same_bits(last.run().results().at(0).toTensor(), y));
  mean.reset();
  deviation.reset();
  EXPECT_TRUE(same_bits(last.run().results().at(0).toTensor(), y)) << "without them";
}

/// Of its own, below autograd: what it calls is not recorded.
template <int kFactor>
at::Tensor times(const at::Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return x * kFactor;
}

TEST(OperatorCall, OfWhatWasRecordedBelowAnotherKernelIsRefused) {
  const Recording recording;
  torch::Library library(torch::Library::FRAGMENT, "operator_call_test", std::nullopt, __FILE__, __LINE__);
  library.def("gate(Tensor x) -> Tensor");
  std::optional<torch::Library> kernel(std::in_place, torch::Library::IMPL, "operator_call_test", c10::DispatchKey::CPU,
                                       __FILE__, __LINE__);
  kernel->impl("gate", times<2>);
  const auto x = torch::randn({4});
  const at::Tensor y = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("operator_call_test::gate", "")
                           .typed<at::Tensor(const at::Tensor&)>()
                           .call(x);
  ASSERT_EQ(recording.names().back(), "operator_call_test::gate");
  LastCall last(recording);
  EXPECT_TRUE(same_bits(last.run().results().at(0).toTensor(), y));
  kernel.emplace(torch::Library::IMPL, "operator_call_test", c10::DispatchKey::CPU, __FILE__, __LINE__);
  kernel->impl("gate", times<3>);
  EXPECT_ERROR(last.run(), "[replay] operator_call_test::gate cannot be repeated: since the forward");
}

}  // namespace
}  // namespace remat::test
