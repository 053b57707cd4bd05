// EfficientNet: its sizes, stochastic depth, and configs that cannot be.
#include "zoo/efficientnet.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::zoo {
namespace {

TEST(EfficientNet, IsOfThePublishedSizeAtEachScale) {
  const int64_t published[] = {5'288'548, 7'794'184, 9'109'994, 12'233'232, 19'341'616};
  for (int64_t number = 0; number < 5; ++number) {
    EXPECT_EQ(make_efficientnet(efficientnet_config(number))->parameter_count(), published[number]) << "B" << number;
    EXPECT_EQ(parameter_count(efficientnet_config(number)), published[number]) << "B" << number;
  }
  EXPECT_EQ(block_count({.depth = 1.1}), 23);
  EXPECT_EQ(head_channels({.width = 1.1}), 1408);
}

TEST(EfficientNet, HalvesImagesFiveTimes) {
  torch::manual_seed(1);
  const auto model = make_efficientnet({.width = 0.25, .classes = 7});
  std::vector<int64_t> sides;
  model->set_block_runner([&](const Model::Block& block, at::Tensor x) {
    auto result = block(std::move(x));
    sides.push_back(result.size(3));
    return result;
  });
  EXPECT_EQ(model->forward(torch::randn({2, 3, 64, 64})).sizes(), (at::IntArrayRef{2, 7}));
  EXPECT_EQ(sides, (std::vector<int64_t>{32, 16, 16, 8, 8, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2}));
}

TEST(EfficientNet, SkipsBlocksForSingleSamplesAndScalesTheOthers) {
  constexpr int64_t kBatch = 16, kBlocks = 16;
  constexpr double kSkipped = 0.9;
  torch::manual_seed(1);
  const auto model = make_efficientnet({.width = 0.25, .dropout = 0, .stochastic_depth = kSkipped});
  torch::manual_seed(1);
  const auto plain = make_efficientnet({.width = 0.25, .dropout = 0, .stochastic_depth = 0});
  std::vector<at::Tensor> inputs, results;
  model->set_block_runner([&](const Model::Block& block, const at::Tensor& x) {
    inputs.push_back(x);
    results.push_back(block(x));
    return results.back();
  });
  model->forward(torch::randn({kBatch, 3, 32, 32}));
  ASSERT_EQ(inputs.size(), static_cast<size_t>(kBlocks));
  int64_t skipped = 0, taken = 0, number = 0;
  plain->set_block_runner([&](const Model::Block& block, const at::Tensor&) {
    const auto i = static_cast<size_t>(number++);
    const auto& x = inputs[i];
    const auto all = block(x);
    if (x.sizes() != all.sizes()) return all;
    const double share = 1 - kSkipped * static_cast<double>(i) / kBlocks;
    for (int64_t sample = 0; sample < kBatch; ++sample) {
      const auto branch = results[i][sample] - x[sample];
      if (results[i][sample].equal(x[sample])) {
        ++skipped;
      } else {
        ++taken;
        EXPECT_TRUE((branch * share).allclose(all[sample] - x[sample], 1e-3, 1e-4)) << "block " << i;
      }
    }
    return all;
  });
  plain->forward(torch::randn({kBatch, 3, 32, 32}));
  EXPECT_GT(skipped, taken / 4);
  EXPECT_GT(taken, skipped / 4);
}

TEST(EfficientNet, DropsSingleElementsWhereItIsToldTo) {
  torch::manual_seed(1);
  const auto model =
      make_efficientnet({.width = 0.25, .dropout = 0, .stochastic_depth = 0.9, .drop_elements = true, .classes = 2});
  int64_t partly = 0;
  model->set_block_runner([&](const Model::Block& block, const at::Tensor& x) {
    const auto result = block(x);
    if (result.sizes() == x.sizes()) {
      const auto kept = result.eq(x).flatten(1).to(at::kFloat).mean(1);  // where the branch was dropped, of each sample
      partly += (kept.gt(0) & kept.lt(1)).sum().item<int64_t>();
    }
    return result;
  });
  model->forward(torch::randn({4, 3, 64, 64}));
  EXPECT_EQ(partly, 4 * 9) << "9 blocks have a branch beside them";
}

TEST(EfficientNet, PadsAllSidesOfTheBlocksThatAreNamed) {
  torch::manual_seed(1);
  const auto even = make_efficientnet({.width = 0.25, .dropout = 0, .stochastic_depth = 0, .classes = 2});
  torch::manual_seed(1);
  const auto square =
      make_efficientnet({.width = 0.25, .dropout = 0, .stochastic_depth = 0, .square_padding = {1}, .classes = 2});
  std::vector<at::Tensor> results[2];
  const auto images = torch::randn({2, 3, 64, 64});
  for (const auto& [model, to] : {std::pair(even, &results[0]), std::pair(square, &results[1])}) {
    model->set_block_runner([to = to](const Model::Block& block, const at::Tensor& x) {
      to->push_back(block(x));
      return to->back();
    });
    model->forward(images);
  }
  EXPECT_TRUE(results[0][0].equal(results[1][0]));
  EXPECT_EQ(results[0][1].sizes(), results[1][1].sizes());
  EXPECT_FALSE(results[0][1].allclose(results[1][1])) << "block 1 begins to halve at another pixel";
}

TEST(EfficientNet, SkipsNothingInEvaluation) {
  torch::manual_seed(1);
  const auto model = make_efficientnet({.width = 0.25, .dropout = 0.5, .stochastic_depth = 0.9});
  const auto images = torch::randn({2, 3, 32, 32});
  EXPECT_FALSE(model->forward(images).equal(model->forward(images)));
  model->eval();
  EXPECT_TRUE(model->forward(images).equal(model->forward(images)));
}

TEST(EfficientNet, ConfigsThatCannotBe) {
  EXPECT_ERROR(efficientnet_config(5), "[efficientnet] there is no B5 here; give 0 to 4");
  EXPECT_ERROR(efficientnet_config(-1), "there is no B-1");
  EXPECT_ERROR(make_efficientnet({.width = 0}), "[efficientnet] width is 0 and");
  EXPECT_ERROR(make_efficientnet({.depth = 17}), "depth 17;");
  EXPECT_ERROR(make_efficientnet({.dropout = 1}), "dropout is 1 and");
  EXPECT_ERROR(make_efficientnet({.stochastic_depth = -0.5}), "stochastic_depth -0.5");
  EXPECT_ERROR(make_efficientnet({.norm_epsilon = 0}), "norm_epsilon is 0 and");
  EXPECT_ERROR(make_efficientnet({.norm_momentum = 1.5}), "norm_momentum 1.5;");
  EXPECT_ERROR(make_efficientnet({.classes = 0}), "classes must be 1 or more");
  EXPECT_ERROR(parameter_count({.width = 17}), "width is 17 and");
}

}  // namespace
}  // namespace remat::zoo
