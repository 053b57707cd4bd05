#include "export/kernels.h"

#include <gtest/gtest.h>

#include "export/call_sizes.h"

namespace remat::exporting {
namespace {

/// A call whose whole numbers are all 1.
StepOperator call_of_ones(const Kernel& kernel) {
  StepOperator call;
  call.kernel = kernel.name;
  for (const KernelField& field : kernel.fields)
    call.arguments.push_back({std::string(field.name), std::vector<double>(static_cast<size_t>(field.count), 1.0)});
  return call;
}

TEST(Kernels, EachTensorSaysHowManyElementsAreReadOrMade) {
  for (const Kernel& kernel : all_kernels()) {
    const StepOperator call = call_of_ones(kernel);
    for (const auto* tensors : {&kernel.inputs, &kernel.results}) {
      for (const KernelTensor& tensor : *tensors)
        EXPECT_GE(elements_of(kernel, call, tensor.elements), 1) << kernel.name << " \"" << tensor.elements << '"';
    }
  }
}

TEST(Kernels, ElementsAreProductsSpansOrOne) {
  const Kernel& kernel = *find_kernel("matmul");
  StepOperator call;
  call.arguments = {{"m", {3}}, {"k", {4}}, {"am", {10}}, {"ak", {2}}, {"relu", {0}}, {"list", {2, 5}}};
  EXPECT_EQ(elements_of(kernel, call, "m*k/am*list"), 12);
  EXPECT_EQ(elements_of(kernel, call, "m:am,k:ak"), 1 + 2 * 10 + 3 * 2);
  EXPECT_EQ(elements_of(kernel, call, "m|relu"), 3);
  EXPECT_EQ(elements_of(kernel, call, "m|k"), 1);
  EXPECT_EQ(elements_of(kernel, call, "2"), 2);
  EXPECT_LT(elements_of(kernel, call, ""), 0);
  EXPECT_LT(elements_of(kernel, call, "unknown*m"), 0);
  EXPECT_LT(elements_of(kernel, call, "m:unknown"), 0);
}

}  // namespace
}  // namespace remat::exporting
