// What must hold for an operator to be run again.
#include "replay/repeatability.h"

#include "support/compare.h"
#include "support/expect_error.h"
#include "support/recording.h"

namespace remat::test {
namespace {

const TensorArgument& first_argument(const Tape& tape) {
  const auto arguments = tape.program.arguments(tape.program[0]);
  return tape.program.tensors(arguments.at(0)).at(0);
}

void check_first(const Recording& recording, const at::Tensor& read) {
  Tape& tape = recording.tape();
  const std::lock_guard lock(tape.mutex);
  check_input(tape, first_argument(tape), StoragePtr::reclaim_copy(storage_of(read)), tape.program[0]);
}

/// The tensors that people write to through pointers have a checksum.
TEST(Repeatability, InputsHaveTheContentsThatWereRead) {
  const auto x = torch::randn({4});
  const Recording recording;
  const at::Tensor y = x.sin();
  check_first(recording, x);
  x.data_ptr<float>()[2] += 1;
  EXPECT_ERROR(check_first(recording, x),
               "[replay] aten::sin cannot be repeated: an input of shape [4] was modified in place after the forward "
               "pass read it (through a pointer or .data)");
}

TEST(Repeatability, ParametersHaveTheirVersion) {
  const auto x = torch::randn({4}).requires_grad_();
  const Recording recording;
  const at::Tensor y = x.sin();
  check_first(recording, x);
  x.unsafeGetTensorImpl()->bump_version();
  EXPECT_ERROR(check_first(recording, x),
               "a parameter of shape [4] was modified in place after the forward pass read "
               "it (version 0, now 1)");
}

TEST(Repeatability, OfTensorsThatNoViewDescribesTheVersionOrPartsTell) {
  const at::Tensor values = torch::ones({1});
  const at::Tensor sparse = torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), values, {4});
  const OperatorInfo& reader = *operator_info(c10::OperatorName("aten::sin", ""));
  TensorArgument argument;
  argument.version = static_cast<uint32_t>(sparse._version());
  EXPECT_ERROR(check_opaque(sparse, argument, reader), "in a tensor that it shares its values or indices with");
  argument.version += 1;
  EXPECT_ERROR(check_opaque(sparse, argument, reader), "(version 1, now 0)");
}

TEST(Repeatability, AChildRunsOnNoMoreThreadsThanItWasGiven) {
  const auto x = torch::randn({4});
  const Recording recording;
  const at::Tensor y = x.sin();
  Tape& tape = recording.tape();
  const Operation& operation = tape.program[0];
  KernelSettings settings = tape.program.settings(operation);
  check_threads(tape, operation, settings);
  settings.threads.kernels += 1;
  check_threads(tape, operation, settings);  // written by this process
  tape.inherited = true;
  EXPECT_ERROR(check_threads(tape, operation, settings), "threads in the process that this one was forked from");
  settings.threads.kernels -= 1;
  check_threads(tape, operation, settings);
}

TEST(Repeatability, RefusalsSayWhy) {
  const OperatorInfo& sin = *operator_info(c10::OperatorName("aten::sin", ""));
  EXPECT_ERROR(refuse_distrusted(sin), "it was declared not repeatable after this call");
  sin.varies = true;
  EXPECT_ERROR(refuse_distrusted(sin), "a replay of it gave other bits on this device");
  sin.contradicted = true;
  EXPECT_ERROR(refuse_distrusted(sin), "a later call wrote to an input");
  sin.varies = sin.contradicted = false;
  EXPECT_ERROR(refuse_replaced(sin), "[replay] aten::sin cannot be repeated: since the forward pass ran it");
}

TEST(Repeatability, OfALeafThatIsLostItsReaderIsNamed) {
  const auto x = torch::randn({4});
  const Recording recording;
  const at::Tensor y = x.sin();
  EXPECT_ERROR(refuse_lost(recording.tape(), recording.id_of(x)),
               "[replay] aten::sin cannot be repeated: an input of shape [4] (16 bytes) was overwritten");
  EXPECT_THROW(refuse_lost(recording.tape(), recording.id_of(y)), InternalError) << "nothing reads it";
}

}  // namespace
}  // namespace remat::test
