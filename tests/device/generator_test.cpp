// The simulated devices' random numbers: a seed and an offset, or the CPU's generator.
#include <ATen/CPUGeneratorImpl.h>

#include "device/device_fixture.h"

namespace remat::simulated {
namespace {

class DeviceGenerator : public DeviceTest {
 protected:
  static at::Generator ours(c10::DeviceIndex index = 0) { return default_generator(index); }
  static torch::Tensor cpu_state() { return at::detail::getDefaultCPUGenerator().get_state(); }
};

TEST_F(DeviceGenerator, RestoredStateRepeatsDropout) {
  const auto input = torch::ones({1000}, device());
  const auto draw = [&] {
    return std::vector<torch::Tensor>{torch::dropout(input, 0.3, true), torch::rand({10}, input.options()),
                                      torch::randn({10}, input.options()), torch::randperm(20, torch::device(device())),
                                      torch::bernoulli(torch::full({10}, 0.5, device()))};
  };
  auto generator = ours();
  generator.set_current_seed(3);
  const auto before = generator.get_state();
  const auto cpu = cpu_state();
  const auto first = draw();
  EXPECT_EQ(generator.get_offset(), 20U);
  const auto other = draw();
  generator.set_state(before);
  const auto second = draw();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i].cpu(), second[i].cpu())) << i;
    EXPECT_FALSE(torch::equal(first[i].cpu(), other[i].cpu())) << i;
  }
  EXPECT_TRUE(torch::equal(cpu, cpu_state()));
  const double kept = first[0].ne(0).sum().item<double>();
  EXPECT_NEAR(kept, 700, 60);
}

TEST_F(DeviceGenerator, FollowsManualSeed) {
  torch::manual_seed(5);
  const auto first = torch::rand({10}, device());
  torch::manual_seed(5);
  EXPECT_TRUE(torch::equal(first.cpu(), torch::rand({10}, device()).cpu()));
}

TEST_F(DeviceGenerator, EachDeviceHasItsOwn) {
  auto first = ours(0);
  auto second = ours(1);
  second.set_offset(0);
  const uint64_t before = first.get_offset();
  torch::rand({4}, device(1));
  EXPECT_EQ(first.get_offset(), before);
  EXPECT_EQ(second.get_offset(), 4U);
}

TEST_F(DeviceGenerator, OfTheCallersServesToo) {
  at::Generator mine = at::make_generator<Generator>(c10::DeviceIndex{0}, uint64_t{11});
  const auto before = ours().get_state();
  const auto first = torch::rand({6}, mine, torch::device(device()));
  EXPECT_TRUE(torch::equal(before, ours().get_state()));
  mine.set_current_seed(11);
  EXPECT_TRUE(torch::equal(first.cpu(), torch::rand({6}, mine, torch::device(device())).cpu()));
  EXPECT_THROW(torch::rand({6}, at::detail::createCPUGenerator(1), torch::device(device())), c10::Error);
}

TEST_F(DeviceGenerator, FallbackDrawsFromTheCpus) {
  set_draw_on_cpu(true);
  const auto input = torch::ones({1000}, device());
  const auto before = ours().get_state();
  auto cpu = at::detail::getDefaultCPUGenerator();
  const auto state = cpu.get_state();
  const auto first = torch::dropout(input, 0.5, true);
  EXPECT_TRUE(torch::equal(before, ours().get_state()));
  EXPECT_FALSE(torch::equal(state, cpu_state()));
  cpu.set_state(state);
  EXPECT_TRUE(torch::equal(first.cpu(), torch::dropout(input, 0.5, true).cpu()));
  cpu.set_state(state);
  EXPECT_TRUE(torch::equal(first.ne(0).cpu(), torch::empty({1000}, torch::kBool).bernoulli_(0.5)));
}

}  // namespace
}  // namespace remat::simulated
