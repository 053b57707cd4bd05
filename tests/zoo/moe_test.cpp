// The mixture of experts: which tokens go where, the balance loss, and configs that cannot be.
#include "zoo/moe.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::zoo {
namespace {

constexpr MoeConfig kSmallMoe = {
    .layers = 2, .width = 8, .heads = 2, .hidden = 16, .experts = 4, .top_k = 2, .seq = 6, .vocab = 10};

at::Tensor parameter_of(const MoeModel& model, const std::string& name) {
  const auto parameters = model.named_parameters();
  const at::Tensor* parameter = parameters.find(name);
  if (parameter == nullptr) throw std::out_of_range(name);
  return *parameter;
}

TEST(Moe, HasEightExpertsInEachLayer) {
  const int64_t width = 512, hidden = 1024, norm = 2 * width;
  const int64_t expert = 2 * width * hidden + hidden + width, attention = 4 * width * width + 4 * width;
  const int64_t layer = 2 * norm + attention + 8 * expert + 8 * width;
  EXPECT_EQ(make_moe({})->parameter_count(), (8192 + 128) * width + 6 * layer + norm);
}

TEST(Moe, SeesThePastAndNotTheFuture) {
  torch::manual_seed(1);
  const auto model = make_moe(kSmallMoe);
  const auto tokens = torch::zeros({2, 6}, torch::kLong);
  auto other = tokens.clone();
  other[0][3] = 5;
  const auto a = model->forward(tokens), b = model->forward(other);
  ASSERT_EQ(a.sizes(), (at::IntArrayRef{2, 6, 10}));
  EXPECT_TRUE(a[1].allclose(b[1], 1e-5, 1e-6));  // experts get other rows together with these
  EXPECT_TRUE(a[0].narrow(0, 0, 3).allclose(b[0].narrow(0, 0, 3), 1e-5, 1e-6));
  for (int64_t i = 3; i < 6; ++i) EXPECT_FALSE(a[0][i].allclose(b[0][i], 1e-5, 1e-6)) << i;
}

TEST(Moe, IsTheWeightedSumOfAllExpertsWhereEachTokenChoosesAll) {
  torch::manual_seed(1);
  auto config = kSmallMoe;
  config.layers = 1;
  config.top_k = config.experts;
  const auto model = make_moe(config);
  at::Tensor input, result;
  model->set_block_runner([&](const Model::Block& block, const at::Tensor& x) {
    input = x;
    return result = block(x);
  });
  // Attention adds nothing, so that the block is x + mixture(norm(x)).
  const torch::NoGradGuard no_grad;
  for (const auto* name : {"block0.proj.weight", "block0.proj.bias"}) parameter_of(*model, name).zero_();
  model->forward(torch::randint(config.vocab, {2, 6}));
  const auto of = [&](const std::string& name) { return parameter_of(*model, "block0." + name); };
  const auto h = at::layer_norm(input, {config.width}, of("norm2.weight"), of("norm2.bias"));
  const auto weights = at::softmax(at::linear(h, of("mixture.router.weight")), -1);
  auto expected = input.clone();
  for (int64_t i = 0; i < config.experts; ++i) {
    const auto expert = "mixture.expert" + std::to_string(i);
    const auto hidden = at::gelu(at::linear(h, of(expert + ".up.weight"), of(expert + ".up.bias")));
    expected += weights.select(-1, i).unsqueeze(-1) *
                at::linear(hidden, of(expert + ".down.weight"), of(expert + ".down.bias"));
  }
  EXPECT_TRUE(result.allclose(expected, 1e-4, 1e-5));
}

TEST(Moe, LeavesExpertsOutThatNoTokenChose) {
  torch::manual_seed(1);
  auto config = kSmallMoe;
  config.layers = 1;
  config.top_k = 1;
  const auto model = make_moe(config);
  model->forward(torch::full({1, 1}, 3, torch::kLong)).sum().backward();
  int64_t ran = 0;
  for (int64_t i = 0; i < config.experts; ++i) {
    ran += parameter_of(*model, "block0.mixture.expert" + std::to_string(i) + ".up.weight").grad().defined() ? 1 : 0;
  }
  EXPECT_EQ(ran, 1);
}

TEST(Moe, TheBalanceLossIsOneWhereTokensSpreadAndExpertsWhereTheyDoNot) {
  torch::manual_seed(1);
  auto config = kSmallMoe;
  config.top_k = 1;
  const auto model = make_moe(config);
  const auto tokens = torch::randint(config.vocab, {16, 6});
  const auto balance = [&] { return model->forward_with_balance(tokens).second.item<double>(); };
  EXPECT_TRUE(model->forward_with_balance(tokens).first.equal(model->forward(tokens)));
  {
    const torch::NoGradGuard no_grad;
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      parameter_of(*model, "block" + std::to_string(layer) + ".mixture.router.weight").zero_();
    }
    // Scores are the same: probabilities are uniform, wherever the tokens go.
    EXPECT_NEAR(balance(), 1, 1e-5);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const auto block = "block" + std::to_string(layer);
      parameter_of(*model, block + ".norm2.weight").zero_();
      parameter_of(*model, block + ".norm2.bias").fill_(1);
      parameter_of(*model, block + ".mixture.router.weight")[2].fill_(10);
    }
    EXPECT_NEAR(balance(), static_cast<double>(config.experts), 1e-3);
  }
}

TEST(Moe, TheBalanceLossBalances) {
  torch::manual_seed(1);
  auto config = kSmallMoe;
  config.top_k = 1;
  const auto model = make_moe(config);
  const auto tokens = torch::randint(config.vocab, {16, 6});
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  double first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    optimizer.zero_grad();
    auto loss = model->forward_with_balance(tokens).second;
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (i == 0) first = last;
  }
  EXPECT_GT(first, 1.05);
  EXPECT_LT(last, 1 + (first - 1) / 2);
}

TEST(Moe, ConfigsThatCannotBe) {
  EXPECT_ERROR(make_moe({.width = 10, .heads = 3}), "[moe] width 10 is not a multiple of heads 3; change one of them");
  EXPECT_ERROR(make_moe({.experts = 4, .top_k = 5}),
               "[moe] top_k is 5, of 4 experts; give a smaller one, or more experts");
  EXPECT_ERROR(make_moe({.hidden = 0}), "must each be 1 or more");
}

}  // namespace
}  // namespace remat::zoo
