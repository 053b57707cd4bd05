// Which kernels are PyTorch's own.
#include "operators/operator_kernels.h"

#include <gtest/gtest.h>
#include <torch/library.h>

namespace remat::test {
namespace {

c10::OperatorHandle operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

void nothing(const c10::OperatorHandle& /*op*/, torch::jit::Stack* /*stack*/) {}

TEST(OperatorKernels, AllOfPyTorchsOperatorsAreItsOwn) {
  int seen = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findOp(name);
    if (!name.name.starts_with("aten::") || !handle || !handle->hasSchema()) continue;
    if (name.name.ends_with("_softmax_backward_data")) continue;  // remat's, see operators/softmax_in_place.cpp
    const OperatorKernels kernels(*handle);
    EXPECT_FALSE(kernels.opaque() || kernels.own() || kernels.own_autograd() || kernels.own_autocast()) << name;
    ++seen;
  }
  EXPECT_GT(seen, 1000);
}

class KernelOfAFile : public testing::TestWithParam<const char*> {};
TEST_P(KernelOfAFile, IsNotPyTorchs) {
  const auto op = operator_named("aten::erfinv");
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU}) {
    const OperatorKernels before(op);
    torch::Library library(torch::Library::IMPL, "aten", key, GetParam(), 12);
    library.impl("erfinv", [](const at::Tensor& x) -> at::Tensor { return x; });
    const OperatorKernels kernels(op);
    EXPECT_FALSE(before.are_in_force());
    EXPECT_FALSE(kernels.opaque());
    EXPECT_EQ(kernels.own(), key == c10::DispatchKey::CPU);
    EXPECT_EQ(kernels.own_autograd(), key == c10::DispatchKey::AutogradCPU);
    EXPECT_EQ(kernels.own_autocast(), key == c10::DispatchKey::AutocastCPU);
  }
  EXPECT_FALSE(OperatorKernels(op).own());
}
INSTANTIATE_TEST_SUITE_P(Files, KernelOfAFile,
                         testing::Values("/x/mytorch/csrc/kernels.cpp", "/x/intel_extension_for_pytorch/csrc/erf.cpp",
                                         "aten/src/ATen/mine.cpp", "../torch/csrc/mine.cc", "mine.cu", ""));

TEST(OperatorKernels, AFallbackForADeviceIsAFunctionOfWhichNothingIsKnown) {
  torch::Library operators(torch::Library::DEF, "remat_kernels", std::nullopt, __FILE__, __LINE__);
  operators.def("without(Tensor x) -> Tensor");
  operators.def("composite(Tensor x) -> Tensor", [](const at::Tensor& x) { return x.sin(); });
  const auto without = operator_named("remat_kernels::without");
  const OperatorKernels before(without);
  EXPECT_FALSE(before.opaque());
  torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&nothing>());
  EXPECT_FALSE(before.are_in_force());
  EXPECT_TRUE(OperatorKernels(without).opaque());
  EXPECT_FALSE(OperatorKernels(operator_named("remat_kernels::composite")).opaque());
  EXPECT_FALSE(OperatorKernels(operator_named("aten::erfinv")).opaque());
}

}  // namespace
}  // namespace remat::test
