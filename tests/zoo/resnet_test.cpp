// Residual networks: sizes that were published, shortcuts without parameters, and configs that cannot be.
#include "zoo/resnet.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::zoo {
namespace {

TEST(ResNet, IsOfThePublishedSizeAtEachDepth) {
  const std::pair<int64_t, int64_t> published[] = {
      {18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}};
  for (const auto& [layers, parameters] : published) {
    EXPECT_EQ(make_resnet(resnet_config(layers))->parameter_count(), parameters) << layers;
  }
}

TEST(ResNet, IsOfThePublishedSizeAtEachDepthForCifar) {
  // The paper's table 6 has them in millions: 0.27, 1.7 and 19.4.
  const std::pair<int64_t, int64_t> published[] = {{20, 269'722}, {110, 1'727'962}, {1202, 19'421'274}};
  for (const auto& [layers, parameters] : published) {
    EXPECT_EQ(make_resnet(cifar_resnet_config(layers))->parameter_count(), parameters) << layers;
  }
}

TEST(ResNet, HasAsManyLayersAsItsNameSays) {
  for (const int64_t layers : {18, 34, 50, 101, 152, 8, 20, 110}) {
    const bool cifar = layers % 6 == 2 && layers != 50 && layers != 152;
    const auto model = make_resnet(cifar ? cifar_resnet_config(layers) : resnet_config(layers));
    int64_t count = 0;
    for (const auto& parameter : model->named_parameters()) {
      const bool shortcut = parameter.key().find("shortcut") != std::string::npos;
      if (parameter.value().dim() > 1 && !shortcut) ++count;
    }
    EXPECT_EQ(count, layers);
  }
}

TEST(ResNet, HalvesImagesInTheStagesThatThePaperSays) {
  torch::manual_seed(1);
  for (const auto& [config, side] :
       {std::pair{resnet_config(18), int64_t{64}}, std::pair{cifar_resnet_config(8), int64_t{32}}}) {
    const auto model = make_resnet(config);
    std::vector<at::IntArrayRef::value_type> sides;
    model->set_block_runner([&](const Model::Block& block, at::Tensor x) {
      auto result = block(std::move(x));
      sides.push_back(result.size(3));
      return result;
    });
    const auto logits = model->forward(torch::randn({2, 3, side, side}));
    EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, config.classes}));
    const std::vector<int64_t> expected =
        config.small_images ? std::vector<int64_t>{32, 16, 8} : std::vector<int64_t>{16, 16, 8, 8, 4, 4, 2, 2};
    EXPECT_EQ(sides, expected);
  }
}

TEST(ResNet, PadsShortcutsForCifarWithZeros) {
  const torch::NoGradGuard no_grad;
  auto config = cifar_resnet_config(8);
  config.width = 4;
  const auto model = make_resnet(config);
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) parameter.zero_();  // what blocks add to their shortcuts is 0
  }
  model->eval();
  std::vector<at::Tensor> results;
  const auto x = torch::rand({1, 4, 8, 8});
  model->set_block_runner([&](const Model::Block& block, const at::Tensor&) {
    results.push_back(block(results.empty() ? x : results.back()));
    return results.back();
  });
  model->forward(torch::randn({1, 3, 8, 8}));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].equal(x));
  ASSERT_EQ(results[1].sizes(), (at::IntArrayRef{1, 8, 4, 4}));
  EXPECT_TRUE(results[1].narrow(1, 0, 4).equal(x.slice(2, {}, {}, 2).slice(3, {}, {}, 2)));
  EXPECT_EQ(results[1].narrow(1, 4, 4).abs().max().item<float>(), 0);
}

TEST(ResNet, ConfigsThatCannotBe) {
  EXPECT_ERROR(resnet_config(20), "[resnet] there is no ResNet-20 for ImageNet; give 18, 34, 50, 101 or 152");
  EXPECT_ERROR(cifar_resnet_config(50 + 1), "[resnet] there is no ResNet-51 for CIFAR; give 6 n + 2 layers");
  EXPECT_ERROR(cifar_resnet_config(2), "there is no ResNet-2 for CIFAR");
  EXPECT_ERROR(make_resnet({.depths = {}}), "must each be 1 or more");
  EXPECT_ERROR(make_resnet({.depths = {1, 0}}), "must each be 1 or more");
}

}  // namespace
}  // namespace remat::zoo
