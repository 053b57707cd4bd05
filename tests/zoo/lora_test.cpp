// Factors beside the linear layers of the zoo's models: what they compute, what is trained, what is refused.
#include "zoo/lora.h"

#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/error.h>

#include "support/expect_error.h"
#include "zoo/gpt.h"
#include "zoo/lstm.h"
#include "zoo/mlp.h"
#include "zoo/vit.h"

namespace remat::zoo {
namespace {

std::shared_ptr<Model> small_gpt() {
  torch::manual_seed(1);
  return make_gpt({.layers = 12, .width = 16, .heads = 2, .seq = 8, .vocab = 20, .dropout = 0});
}

std::shared_ptr<Model> small_vit() {
  torch::manual_seed(1);
  return make_vit({.image = 8, .patch = 4, .layers = 2, .width = 16, .heads = 2, .hidden = 24, .classes = 3});
}

std::set<std::string> trained(const Model& model) {
  std::set<std::string> names;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) names.insert(item.key());
  }
  return names;
}

std::set<std::string> layers(const Model& model) {
  std::set<std::string> names;
  for (const auto& [name, layer] : lora_layers(model)) names.insert(name);
  return names;
}

void draw_factors(const Model& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, layer] : lora_layers(model)) at::Tensor(layer->lora_b()).normal_(0.0, 0.3);
}

TEST(Lora, ChangesNothingAtFirst) {
  const auto model = small_gpt();
  const auto tokens = torch::arange(8).view({1, 8});
  const auto before = model->forward(tokens);
  add_lora(*model, {.rank = 3});
  EXPECT_TRUE(model->forward(tokens).equal(before));
}

TEST(Lora, TrainsFactorsAloneAndAllOfThem) {
  const auto model = small_gpt();
  const int64_t all = model->parameter_count();
  add_lora(*model, {.rank = 3});
  draw_factors(*model);
  EXPECT_EQ(model->trained_parameter_count(), 12 * 3 * (16 + 48));
  EXPECT_EQ(model->parameter_count(), all + 12 * 3 * (16 + 48));
  model->forward(torch::arange(8).view({1, 8})).square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    const bool factor = item.key().ends_with("qkv.lora_a") || item.key().ends_with("qkv.lora_b");
    EXPECT_EQ(item.value().grad().defined(), factor) << item.key();
  }
}

TEST(Lora, IsEquationThree) {
  torch::manual_seed(1);
  Linear layer(5, 7);
  layer->add_factors(2, 1.5);
  at::Tensor(layer->lora_b()).detach().normal_();
  const auto x = torch::randn({4, 5});
  const auto expected = at::linear(x, layer->weight, layer->bias) +
                        1.5 * at::matmul(at::matmul(x, layer->lora_a().t()), layer->lora_b().t());
  EXPECT_TRUE(layer->forward(x).allclose(expected, 1e-5, 1e-6));
  EXPECT_TRUE(at::linear(x, layer->merged_weight(), layer->bias).allclose(expected, 1e-5, 1e-6));
  EXPECT_ERROR(layer->add_factors(2, 1.5), "has factors already");
}

TEST(Lora, TheProductCountsAlphaByRank) {
  for (const int64_t rank : {1, 4}) {
    const auto model = small_gpt();
    add_lora(*model, {.rank = rank, .alpha = 3});
    const torch::NoGradGuard no_grad;
    for (const auto& [name, layer] : lora_layers(*model)) {
      at::Tensor(layer->lora_a()).fill_(1);
      at::Tensor(layer->lora_b()).fill_(1);
      const auto difference = layer->merged_weight() - layer->weight;
      EXPECT_TRUE(difference.allclose(torch::full_like(difference, 3), 1e-5)) << rank;
    }
  }
}

TEST(Lora, MergedWeightsComputeTheSame) {
  const auto model = small_vit(), other = small_vit();
  add_lora(*model, {.rank = 4, .alpha = 8, .layers = {"*"}});
  draw_factors(*model);
  const auto merged = merged_parameters(*model);
  const torch::NoGradGuard no_grad;
  auto parameters = other->named_parameters();
  ASSERT_EQ(merged.size(), parameters.size());
  for (const auto& [name, tensor] : merged) parameters[name].copy_(tensor);
  const auto image = torch::randn({2, 3, 8, 8});
  EXPECT_TRUE(other->forward(image).allclose(model->forward(image), 1e-4, 1e-5));
}

TEST(Lora, TheLastLayerOfAClassifierIsTrainedAndWhatTheCallerNames) {
  const auto model = small_vit();
  add_lora(*model, {.rank = 1, .layers = {"block0.up"}}, {"norm.bias"});
  EXPECT_EQ(trained(*model), (std::set<std::string>{"block0.up.lora_a", "block0.up.lora_b", "classify.bias",
                                                    "classify.weight", "norm.bias"}));
}

TEST(Lora, PatternsAreNamesOrTheirEnds) {
  const auto chosen = [](const std::vector<std::string>& patterns) {
    const auto model = small_gpt();
    add_lora(*model, {.rank = 1, .layers = patterns});
    return layers(*model);
  };
  EXPECT_EQ(chosen({"block1.qkv"}), (std::set<std::string>{"block1.qkv"}));
  EXPECT_EQ(chosen({"block1*.qkv"}), (std::set<std::string>{"block1.qkv", "block10.qkv", "block11.qkv"}));
  EXPECT_EQ(chosen({"up"}).size(), 12);
  EXPECT_EQ(chosen({"block2.*", "block3.down"}).size(), 5);
  EXPECT_EQ(chosen({"*"}).size(), 48) << "no dot";
  EXPECT_EQ(chosen({}).size(), 12) << "queries and values";
  const auto model = small_gpt();
  add_lora(*model, {.rank = 1, .layers = {"mlp.inner"}}, {},
           [](const std::string& ours) { return ours.ends_with("up") ? "h." + ours + ".mlp.inner" : ours; });
  EXPECT_EQ(layers(*model).size(), 12) << "by the names of others";
}

TEST(Lora, WhatCannotBeIsRefusedAndNothingChanges) {
  const auto model = small_gpt();
  const auto before = trained(*model);
  EXPECT_ERROR(add_lora(*model, {.rank = 1, .layers = {"qkv", "q_proj"}}),
               "[lora] no linear layer fits 'q_proj'; there are block*.qkv, block*.proj, block*.up, block*.down, and");
  for (const auto* const pattern : {"", "kv", "block0", "block*", "*.block0.qkv"}) {
    EXPECT_ERROR(add_lora(*model, {.rank = 1, .layers = {pattern}}),
                 "no linear layer fits '" + std::string(pattern) + "'");
  }
  EXPECT_ERROR(add_lora(*model, {.rank = 0}), "[lora] the rank is 0; give 1 or more");
  EXPECT_ERROR(add_lora(*model, {.rank = 17}),
               "[lora] the rank is 17, and layer 'block0.qkv' is 16 x 48; give 16 or less");
  EXPECT_ERROR(add_lora(*make_lstm({.layers = 1, .width = 8, .vocab = 20}), {}), "has no linear layers in its blocks");
  EXPECT_ERROR(add_lora(*make_window_mlp({.layers = 2, .width = 8, .seq = 4, .embedding = 4, .vocab = 10}), {}),
               "no layers of queries and values; name others: there are hidden.linear*");
  EXPECT_EQ(trained(*model), before);
  add_lora(*model, {.rank = 16});
}

}  // namespace
}  // namespace remat::zoo
