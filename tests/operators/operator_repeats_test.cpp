// Which calls give the same bits each time.
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "operators/operator_info.h"
#include "support/inputs.h"

namespace remat::test {
namespace {

using Inputs = std::vector<c10::IValue>;

const OperatorInfo& repeating(const char* name, const char* overload = "") {
  return *operator_info(c10::OperatorName(name, overload));
}

bool repeats(const OperatorInfo& info, const Inputs& inputs, int threads = 2) {
  return info.repeats(inputs_of(inputs), threads);
}

void does_nothing(const c10::OperatorHandle& /*op*/, torch::jit::Stack* /*stack*/) {}

/// Threads that write to the same element.
TEST(OperatorRepeats, NotWhereThreadsRace) {
  const OperatorInfo& put = repeating("aten::index_put");
  const auto indexed = [](int64_t elements) -> Inputs {
    const auto x = torch::zeros({elements});
    return {x, c10::List<std::optional<at::Tensor>>({torch::zeros({elements}, torch::kLong)}), x, true};
  };
  EXPECT_FALSE(repeats(put, indexed(1 << 20)));
  EXPECT_TRUE(repeats(put, indexed(1 << 20), /*threads=*/1));
  EXPECT_TRUE(repeats(put, indexed(8))) << "one thread does it all";
  EXPECT_TRUE(repeats(repeating("aten::mm"), {torch::zeros({2000, 2000}), torch::zeros({2000, 2000})}));
}

/// Several index tensors are broadcast to one another.
TEST(OperatorRepeats, NotWhereIndicesAreManyTogether) {
  const auto x = torch::zeros({8, 8});
  const c10::List<std::optional<at::Tensor>> indices(
      {torch::zeros({1024, 1}, torch::kLong), torch::zeros({1, 1024}, torch::kLong)});
  EXPECT_FALSE(repeats(repeating("aten::index_put"), {x, indices, torch::ones({}), true}));
}

TEST(OperatorRepeats, NotWhereKernelsAreKnownNotTo) {
  const auto x = torch::randn({4, 4});
  EXPECT_FALSE(repeats(repeating("aten::linalg_lstsq"), {x, x, c10::IValue(), c10::IValue()}));
}

TEST(OperatorRepeats, AsItsUserDeclares) {
  torch::Library library(torch::Library::FRAGMENT, "operator_repeats_test", std::nullopt, __FILE__, __LINE__);
  library.def("gate(Tensor x) -> Tensor");
  library.impl("gate",
               torch::dispatch(c10::DispatchKey::CPU, torch::CppFunction::makeFromBoxedFunction<&does_nothing>()));
  const char* const name = "operator_repeats_test::gate";
  const Inputs inputs = {torch::zeros({4})};
  EXPECT_FALSE(repeats(repeating(name), inputs)) << "its kernel may be a function of Python's";
  EXPECT_TRUE(repeating(name).runs_once(inputs_of(inputs)));
  declare_operator(name, Declared::kRepeatable);
  EXPECT_TRUE(repeats(repeating(name), inputs));
  EXPECT_FALSE(repeating(name).runs_once(inputs_of(inputs)));
  declare_operator(name, Declared::kNotRepeatable);
  EXPECT_FALSE(repeats(repeating(name), inputs));
  declare_operator(name, Declared::kRepeatable);
  repeating(name).contradicted = true;
  EXPECT_FALSE(repeats(repeating(name), inputs)) << "a call has shown that it does not";
  EXPECT_TRUE(repeating(name).writes_arguments());
}

}  // namespace
}  // namespace remat::test
