// Collectives do not begin before the tape that their thread records on has been asked.
#include "observe/special_kernels.h"

#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "support/recording.h"

namespace remat::test {
namespace {

int g_runs = 0;

at::Tensor collective_of_this_test(const at::Tensor& x) {
  ++g_runs;
  return x.clone();
}

class SpecialKernels : public testing::Test {
 protected:
  SpecialKernels() {
    library_.def("collective_of_this_test(Tensor x) -> Tensor");
    library_.impl("collective_of_this_test", torch::dispatch(c10::DispatchKey::CPU, &collective_of_this_test));
    g_runs = 0;
  }
  static void communicate() {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("c10d::collective_of_this_test", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(torch::ones({4}));
  }

 private:
  torch::Library library_{torch::Library::FRAGMENT, "c10d", std::nullopt, __FILE__, __LINE__};
};

TEST_F(SpecialKernels, AskBeforeACollectiveBegins) {
  auto kernels = install_special_kernels(c10::DeviceType::CPU, /*has_ranks=*/true);
  communicate();  // nothing is recorded
  EXPECT_EQ(g_runs, 1);
  Recording recording;
  std::vector<std::string> asked;
  recording.tape().before_collective = [&](std::string_view name) {
    EXPECT_EQ(g_runs, 1);
    asked.emplace_back(name);
  };
  communicate();
  EXPECT_EQ(asked, (std::vector<std::string>{"c10d::collective_of_this_test"}));
  EXPECT_EQ(g_runs, 2);
  {
    const Recorder::Suspension own;  // remat's own, by which ranks agree
    communicate();
  }
  EXPECT_EQ(asked.size(), 1U);
  recording.tape().before_collective = [](std::string_view) { throw std::runtime_error("refused"); };
  EXPECT_THROW(communicate(), std::runtime_error);
  EXPECT_EQ(g_runs, 3) << "what is refused does not begin";
  kernels.clear();
  communicate();  // PyTorch's kernel again
  EXPECT_EQ(g_runs, 4);
}

TEST_F(SpecialKernels, DoNotAskForASessionByItself) {
  const auto kernels = install_special_kernels(c10::DeviceType::CPU, /*has_ranks=*/false);
  const Recording recording;
  recording.tape().before_collective = [](std::string_view) { FAIL(); };
  communicate();
  EXPECT_EQ(g_runs, 1);
}

}  // namespace
}  // namespace remat::test
