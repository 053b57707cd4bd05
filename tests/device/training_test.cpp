// Training on the simulated device has the bits that it has on the CPU.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <functional>
#include <thread>

#include "device/device_fixture.h"

namespace remat::simulated {
namespace {

/// What a step leaves: the loss, gradients, parameters and buffers, on the CPU.
using Values = std::vector<torch::Tensor>;

torch::Tensor numbers(at::IntArrayRef sizes, int step) {
  const auto count = c10::multiply_integers(sizes);
  return torch::arange(count).add(17 * step).mul(0.7).sin().to(torch::kFloat).view(sizes);
}

torch::Tensor labels(at::IntArrayRef sizes, int step, int64_t classes) {
  return torch::arange(c10::multiply_integers(sizes)).mul(7).add(step).remainder(classes).view(sizes);
}

/// A model without torch::nn: its modules can't be moved to a PrivateUse1 device in C++ (set_data() refuses).
struct Model {
  std::string name;
  std::vector<std::vector<int64_t>> parameters;
  std::vector<torch::Tensor> buffers;
  std::function<torch::Tensor(const Values& parameters, const Values& buffers, c10::Device, int step)> loss;
  bool adam = false;
};

Model mlp(double dropout = 0) {
  return {"mlp",
          {{32, 16}, {32}, {32, 32}, {32}, {4, 32}, {4}},
          {},
          [dropout](const Values& p, const Values& /*buffers*/, c10::Device on, int step) {
            auto x = torch::gelu(torch::linear(numbers({8, 16}, step).to(on), p[0], p[1]));
            x = torch::dropout(x, dropout, true);
            x = torch::linear(torch::tanh(torch::linear(x, p[2], p[3])), p[4], p[5]);
            return torch::mse_loss(x, numbers({8, 4}, step + 1).to(on));
          },
          true};
}

Model convolutions() {
  return {"convolutions",
          {{8, 3, 3, 3}, {8}, {8}, {8, 8, 3, 3}, {8}, {8}, {8}, {5, 8}, {5}},
          {torch::zeros({8}), torch::ones({8}), torch::zeros({8}), torch::ones({8})},
          [](const Values& p, const Values& b, c10::Device on, int step) {
            auto x = torch::conv2d(numbers({4, 3, 10, 10}, step).to(on), p[0], {}, 1, 1);
            x = torch::batch_norm(x, p[1], p[2], b[0], b[1], true, 0.1, 1e-5, false).relu_();
            x = torch::conv2d(torch::max_pool2d(x, 2), p[3], p[4]);
            x = torch::batch_norm(x, p[5], p[6], b[2], b[3], true, 0.1, 1e-5, false).relu_();
            x = torch::linear(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1), p[7], p[8]);
            return torch::cross_entropy_loss(x, labels({4}, step, 5).to(on));
          }};
}

Model attention() {
  return {"attention",
          {{11, 8}, {8}, {8}, {24, 8}, {24}, {11, 8}, {11}},
          {},
          [](const Values& p, const Values& /*buffers*/, c10::Device on, int step) {
            const auto embedded = torch::embedding(p[0], labels({3, 6}, step, 11).to(on));
            const auto qkv = torch::linear(torch::layer_norm(embedded, {8}, p[1], p[2]), p[3], p[4]);
            const auto parts = qkv.view({3, 6, 3, 2, 4}).permute({2, 0, 3, 1, 4});
            const auto mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
            const auto x = torch::linear(embedded + mixed.transpose(1, 2).reshape({3, 6, 8}), p[5], p[6]);
            return torch::cross_entropy_loss(x.flatten(0, 1), labels({18}, step + 3, 11).to(on));
          },
          true};
}

Model recurrent(bool gru) {
  const int64_t gates = gru ? 18 : 24;
  return {gru ? "gru" : "lstm",
          {{gates, 4}, {gates, 6}, {gates}, {gates}, {gates, 6}, {gates, 6}, {gates}, {gates}},
          {},
          [gru](const Values& p, const Values& /*buffers*/, c10::Device on, int step) {
            const auto x = numbers({5, 3, 4}, step).to(on);
            const auto h = torch::zeros({2, 3, 6}, on);
            const auto out = gru ? std::get<0>(torch::gru(x, h, p, true, 2, 0.0, true, false, false))
                                 : std::get<0>(torch::lstm(x, {h, h}, p, true, 2, 0.0, true, false, false));
            return torch::mse_loss(out, numbers({5, 3, 6}, step + 1).to(on));
          }};
}

Values train(const Model& model, c10::Device on, int steps = 5) {
  Values parameters;
  Values buffers;
  for (const auto& sizes : model.parameters) {
    const auto start = numbers(sizes, static_cast<int>(parameters.size())).mul(0.3);
    parameters.push_back(start.to(on).detach().requires_grad_());
  }
  for (const auto& buffer : model.buffers) buffers.push_back(buffer.clone().to(on));
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (model.adam) {
    optimizer = std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2));
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  Values values;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const auto loss = model.loss(parameters, buffers, on, step);
    loss.backward();
    optimizer->step();
    values.push_back(loss.detach().cpu().clone());
    for (const auto& parameter : parameters) {
      values.push_back(parameter.grad().cpu().clone());
      values.push_back(parameter.detach().cpu().clone());
    }
    for (const auto& buffer : buffers) values.push_back(buffer.cpu().clone());
  }
  return values;
}

void expect_same(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(torch::equal(actual[i], expected[i])) << "value " << i << " of " << actual.size();
  }
}

class DeviceTraining : public DeviceTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    // The device takes attention apart; so does the CPU then.
    flash_ = at::globalContext().userEnabledFlashSDP();
    at::globalContext().setSDPUseFlash(false);
    set_synchronous(GetParam());
    set_delay(GetParam() ? 0 : 30);
  }
  void TearDown() override {
    at::globalContext().setSDPUseFlash(flash_);
    DeviceTest::TearDown();
  }

 private:
  bool flash_ = true;
};

TEST_P(DeviceTraining, HasTheBitsOfTheCpu) {
  for (const Model& model : {mlp(), convolutions(), attention()}) {
    SCOPED_TRACE(model.name);
    expect_same(train(model, device(1)), train(model, torch::kCPU));
  }
}

TEST_P(DeviceTraining, WithDropoutDependsOnTheSeedAlone) {
  const auto train_from = [](uint64_t seed) {
    torch::manual_seed(seed);
    return train(mlp(0.4), device());
  };
  const Values values = train_from(3);
  expect_same(train_from(3), values);
  EXPECT_FALSE(torch::equal(train_from(4)[0], values[0]));
  set_synchronous(!GetParam());
  expect_same(train_from(3), values);
}

TEST_P(DeviceTraining, RecurrentLayersRepeatAndAreCloseToTheCpus) {
  for (const Model& model : {recurrent(false), recurrent(true)}) {
    SCOPED_TRACE(model.name);
    const Values values = train(model, device());
    expect_same(train(model, device()), values);
    const Values cpu = train(model, torch::kCPU);
    ASSERT_EQ(values.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(torch::allclose(values[i], cpu[i], 1e-4, 1e-6)) << i;
  }
}

TEST_P(DeviceTraining, BackwardRunsOnAThreadOfAutograds) {
  auto x = torch::ones({4}, device()).requires_grad_();
  std::thread::id thread;
  auto y = x.mul(2);
  y.register_hook([&](const torch::Tensor&) { thread = std::this_thread::get_id(); });
  y.sum().backward();
  EXPECT_NE(thread, std::thread::id());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_P(DeviceTraining, AutocastLowersProducts) {
  const auto x = torch::ones({4, 4}, device());
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, true);
  at::autocast::set_autocast_dtype(c10::kPrivateUse1, torch::kBFloat16);
  const auto product = x.mm(x);
  const auto linear = torch::linear(x, x);
  const auto sum = x.add(x);
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, false);
  at::autocast::clear_cache();
  EXPECT_EQ(product.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(linear.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(sum.scalar_type(), torch::kFloat);
}

TEST_P(DeviceTraining, OperatorsWriteWhereTheyAreTold) {
  const auto x = torch::arange(12, device()).to(torch::kFloat).view({3, 4});
  auto view = x.select(0, 1);
  view.mul_(10);
  EXPECT_EQ(x[1][2].item<float>(), 60.0F);
  auto out = torch::empty({0}, device());
  torch::add_out(out, x, x);  // resized
  EXPECT_TRUE(torch::equal(out.cpu(), x.cpu() * 2));
  auto found = torch::empty({0}, torch::dtype(torch::kLong).device(device()));
  torch::nonzero_out(found, x);
  EXPECT_EQ(found.size(0), 11);
  x.index_put_({torch::tensor({0}), torch::tensor({1}, device())}, torch::full({1}, -1.0F, device()));
  EXPECT_EQ(x[0][1].item<float>(), -1.0F);
  EXPECT_EQ(x.masked_select(x.gt(50)).numel(), 2);
  EXPECT_EQ(x.index({x.gt(50)}).numel(), 2);
  EXPECT_TRUE(torch::equal(x.t().contiguous().cpu(), x.cpu().t()));
  const auto parts = x.unsafe_split(2, 1);
  EXPECT_TRUE(torch::equal(parts[1].cpu(), x.cpu().slice(1, 2)));
  EXPECT_EQ(std::get<1>(x.sort(1, true))[0][0].item<int64_t>(), 3);
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceTraining, testing::Bool(),
                         [](const auto& mode) { return mode.param ? "synchronous" : "asynchronous"; });

}  // namespace
}  // namespace remat::simulated
