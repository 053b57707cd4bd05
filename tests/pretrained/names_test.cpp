#include "pretrained/names.h"

#include <array>

#include <gtest/gtest.h>

namespace remat::pretrained {
namespace {

constexpr std::array<Renaming, 5> kRenamings = {{{"tokens", "wte"},
                                                 {"class_token", "embeddings.cls_token"},
                                                 {"block*.proj", "h.*.attn.c_proj", /*transposed=*/true},
                                                 {"predict", "cls.predictions"},
                                                 {"predict.norm", "cls.norm"}}};

std::string name_of(const std::string& ours) {
  const auto found = find_name(kRenamings, ours);
  return found ? found->name + (found->transposed ? " transposed" : "") : "(none)";
}

TEST(Names, AreFoundByModule) {
  EXPECT_EQ(name_of("tokens.weight"), "wte.weight");
  EXPECT_EQ(name_of("block12.proj.weight"), "h.12.attn.c_proj.weight transposed");
  EXPECT_EQ(name_of("block12.proj.bias"), "h.12.attn.c_proj.bias");
  EXPECT_EQ(name_of("class_token"), "embeddings.cls_token");
  EXPECT_EQ(name_of("predict.bias"), "cls.predictions.bias");
  EXPECT_EQ(name_of("predict.norm.weight"), "cls.norm.weight");
}

TEST(Names, AClassifierIsOneModuleForPeft) {
  EXPECT_EQ(classifier_of("classifier.weight"), "classifier");
  EXPECT_EQ(classifier_of("classifier.out_proj.bias"), "classifier");
  EXPECT_EQ(classifier_of("pre_classifier.weight"), "pre_classifier");
  EXPECT_EQ(classifier_of("bert.pooler.dense.weight"), std::nullopt);
}

TEST(Names, OthersAreNotFound) {
  for (const auto* const ours : {"token.weight", "tokens2.weight", "block.proj.weight", "blockA.proj.weight",
                                 "block1.projection.weight", "block1.proj.low.weight", "weight", ""}) {
    EXPECT_EQ(name_of(ours), "(none)") << ours;
  }
}

}  // namespace
}  // namespace remat::pretrained
