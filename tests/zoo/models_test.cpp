// What the models of the zoo compute, and what they refuse.
#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/bert.h"
#include "zoo/deep.h"
#include "zoo/dense.h"
#include "zoo/lstm.h"
#include "zoo/task.h"
#include "zoo/unet.h"

namespace remat::zoo {
namespace {

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

constexpr BertConfig kSmallBert = {.layers = 2, .width = 8, .heads = 2, .hidden = 16, .seq = 16, .vocab = 20};

TEST(Bert, IsOfTheSizeThatIsKnown) {
  EXPECT_EQ(make_bert({})->parameter_count(), 109'482'240 + 2 * 768 + 2);  // BERT-base with its pooler, and two classes
}

TEST(Bert, LooksAtNothingThatIsMaskedAndAtAllElse) {
  torch::manual_seed(1);
  const auto model = make_bert(kSmallBert);
  model->eval();
  auto input = torch::ones({1, 3, 6}, torch::kLong);
  input.select(1, 2).narrow(1, 4, 2).zero_();
  const auto before = model->forward(input);
  auto padding = input.clone();
  padding.select(1, 0).narrow(1, 4, 2).fill_(7);
  EXPECT_TRUE(before.equal(model->forward(padding)));
  for (const int64_t row : {0, 1}) {
    auto other = input.clone();
    other[0][row][3] = 0;
    EXPECT_FALSE(before.equal(model->forward(other))) << row;
  }
}

TEST(Bert, DropsWeightsOfAttention) {
  torch::manual_seed(1);
  auto config = kSmallBert;
  config.dropout = 0;
  config.attention_dropout = 0.5;
  const auto model = make_bert(config);
  const auto input = torch::ones({1, 3, 6}, torch::kLong);
  EXPECT_FALSE(model->forward(input).equal(model->forward(input)));
  model->eval();
  EXPECT_TRUE(model->forward(input).equal(model->forward(input)));
}

TEST(Bert, ConfigsThatCannotBe) {
  EXPECT_EQ(error_of([] { make_bert({.width = 10, .heads = 3}); }),
            "[bert] width 10 is not a multiple of heads 3; change one of them");
  EXPECT_NE(error_of([] { make_bert({.hidden = 0}); }).find("must each be 1 or more"), std::string::npos);
  EXPECT_NE(error_of([] { make_bert({.dropout = 1}); }).find("dropout is 1"), std::string::npos);
}

TEST(UNet, LabelsEveryPixelFromAfar) {
  torch::manual_seed(1);
  const auto model = make_unet({.levels = 2, .width = 4, .groups = 2, .classes = 3});
  auto image = torch::randn({1, 3, 32, 32}).requires_grad_();
  const auto labels = model->forward(image);
  ASSERT_EQ(labels.sizes(), (at::IntArrayRef{1, 3, 32, 32}));
  labels[0][0][0][0].backward();
  EXPECT_GT(image.grad().abs().select(3, 31).max().item<float>(), 0);  // GroupNorm looks at the whole image
}

TEST(UNet, ConfigsThatCannotBe) {
  EXPECT_EQ(error_of([] { make_unet({.width = 12, .groups = 8}); }),
            "[unet] width 12 is not a multiple of groups 8; change one of them");
  EXPECT_EQ(error_of([] { make_unet({.levels = 17}); }), "[unet] levels is 17; give 16 or fewer");
  EXPECT_NE(error_of([] { make_unet({.classes = 0}); }).find("must each be 1 or more"), std::string::npos);
}

TEST(Lstm, SeesThePastAndNotTheFuture) {
  torch::manual_seed(1);
  const auto model = make_lstm({.layers = 2, .width = 8, .vocab = 10});
  model->eval();
  const auto tokens = torch::zeros({2, 6}, torch::kLong);
  auto other = tokens.clone();
  other[0][3] = 5;
  const auto a = model->forward(tokens), b = model->forward(other);
  ASSERT_EQ(a.sizes(), (at::IntArrayRef{2, 6, 10}));
  EXPECT_TRUE(a[1].equal(b[1]));
  EXPECT_TRUE(a[0].narrow(0, 0, 3).equal(b[0].narrow(0, 0, 3)));
  for (int64_t i = 3; i < 6; ++i) EXPECT_FALSE(a[0][i].equal(b[0][i])) << i;
}

TEST(Lstm, ConfigsThatCannotBe) {
  EXPECT_NE(error_of([] { make_lstm({.vocab = 0}); }).find("must each be 1 or more"), std::string::npos);
  EXPECT_NE(error_of([] { make_lstm({.dropout = -1}); }).find("dropout is -1"), std::string::npos);
}

TEST(Deep, IsDeepAndRefusesWhatCannotBe) {
  const auto model = make_deep({});
  EXPECT_EQ(model->parameter_count(), 100 * (2 * 256 * 512 + 512 + 256 + 2 * 256) + 2 * 256);
  EXPECT_NE(error_of([] { make_deep({.layers = 0}); }).find("must each be 1 or more"), std::string::npos);
}

TEST(Dense, HasALayerForEachNumberOfUnits) {
  EXPECT_EQ(make_dense({})->parameter_count(), 8 * 16 + 16 + 16 * 32 + 32);
  EXPECT_EQ(make_dense({.features = 2, .units = {3}})->forward(at::ones({5, 2})).sizes(), (std::vector<int64_t>{5, 3}));
  for (const DenseConfig& config :
       {DenseConfig{.features = 0}, DenseConfig{.units = {}}, DenseConfig{.units = {4, 0}}}) {
    EXPECT_NE(error_of([&] { make_dense(config); }).find("[dense] features and the units"), std::string::npos);
  }
}

TEST(Tasks, EachHasALossAndIsTheSameInEveryCall) {
  const torch::NoGradGuard no_grad;
  for (const TaskInfo& info : list_tasks()) {
    const Task task = make_task(info.name, 1);
    EXPECT_EQ(task.name, info.name);
    EXPECT_EQ(task.input.size(0), 1);
    const auto loss = task.loss();
    EXPECT_EQ(loss.dim(), 0);
    EXPECT_GT(loss.item<double>(), 0) << info.name;
    const Task again = make_task(info.name, 1);
    EXPECT_TRUE(loss.equal(again.loss())) << info.name;
    EXPECT_EQ(task.model->forward_to_head(task.input).has_value(), info.ends_in_head) << info.name;
  }
}

TEST(Tasks, ThoseOfAGivenDepthHaveIt) {
  EXPECT_EQ(make_deep_task("mlp", 3, 2).model->parameter_count(), 3 * (1024 * 1024 + 1024));
  const auto shallow = make_deep_task("cifar-resnet", 8, 2), deep = make_deep_task("cifar-resnet", 14, 2);
  EXPECT_GT(deep.model->parameter_count(), shallow.model->parameter_count());
  EXPECT_TRUE(std::isfinite(deep.loss().item<float>()));
  EXPECT_EQ(make_deep_task("cifar-resnet", 14, 2).loss().item<float>(), deep.loss().item<float>());
  EXPECT_NE(error_of([] { make_deep_task("gpt", 3); }).find("there is no task 'gpt'; there are mlp, cifar-resnet"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_deep_task("mlp", 3, -1); }).find("batch is -1"), std::string::npos);
}

TEST(Tasks, ThoseOfOtherSizesHaveThem) {
  const torch::NoGradGuard no_grad;
  for (const TaskInfo& info : list_tasks()) {
    TaskSizes sizes{.batch = 2};
    if (info.length.usual > 0) sizes.length = 2 * info.length.step;
    if (info.depth.usual > 0) sizes.depth = 2;
    if (info.width.usual > 0) sizes.width = 2 * info.width.step;
    const Task task = make_task(info.name, sizes);
    EXPECT_EQ(task.input.size(0), 2) << info.name;
    if (sizes.length > 0) {
      EXPECT_EQ(task.input.size(-1), sizes.length) << info.name;
    }
    const Task larger = with_batch(task, 5);
    EXPECT_EQ(larger.input.size(0), 5) << info.name;
    EXPECT_TRUE(larger.input[4].equal(task.input[0])) << info.name;
    EXPECT_TRUE(std::isfinite(larger.loss().item<float>())) << info.name;
  }
}

TEST(Tasks, WhatThereIsNot) {
  EXPECT_NE(error_of([] { make_task("unet", {.depth = 3}); }).find("unet's depth cannot be another"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_task("gpt", {.width = 20}); }).find("gpt's width is 20; give a multiple of 8"),
            std::string::npos);
  EXPECT_EQ(
      error_of([] { make_task("rnn"); }),
      "[make_task] there is no task 'rnn'; there are bert, deep, dense, efficientnet, gpt, lstm, mlp, moe, resnet, "
      "unet, vit");
  EXPECT_NE(error_of([] { make_task("mlp", -1); }).find("batch is -1"), std::string::npos);
}

}  // namespace
}  // namespace remat::zoo
