// The vision transformer: its size, what it depends on, and configs that cannot be.
#include "zoo/vit.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::zoo {
namespace {

constexpr VitConfig kSmallVit = {
    .image = 8, .patch = 4, .layers = 2, .width = 8, .heads = 2, .hidden = 16, .classes = 3};

TEST(Vit, IsOfThePublishedSize) {
  EXPECT_EQ(make_vit({})->parameter_count(), 86'567'656);  // ViT-B/16 with 1,000 classes
}

TEST(Vit, LooksAtEveryPatchAndKnowsItsPlace) {
  torch::manual_seed(1);
  const auto model = make_vit(kSmallVit);
  const auto image = torch::randn({2, 3, 8, 8});
  const auto logits = model->forward(image);
  ASSERT_EQ(logits.sizes(), (at::IntArrayRef{2, 3}));
  for (const int64_t row : {0, 4}) {
    for (const int64_t column : {0, 4}) {
      auto other = image.clone();
      other[0].narrow(1, row, 4).narrow(2, column, 4).zero_();
      const auto changed = model->forward(other);
      EXPECT_FALSE(changed[0].equal(logits[0])) << row << ", " << column;
      EXPECT_TRUE(changed[1].equal(logits[1])) << row << ", " << column;
    }
  }
  const auto moved = model->forward(image.roll({4}, {3}));
  EXPECT_GT((moved - logits).abs().max().item<float>(), 1e-5);  // another order of sums changes less
}

TEST(Vit, DropsInTrainingAlone) {
  torch::manual_seed(1);
  auto config = kSmallVit;
  config.dropout = 0.5;
  const auto model = make_vit(config);
  const auto image = torch::randn({1, 3, 8, 8});
  EXPECT_FALSE(model->forward(image).equal(model->forward(image)));
  model->eval();
  EXPECT_TRUE(model->forward(image).equal(model->forward(image)));
}

TEST(Vit, ConfigsThatCannotBe) {
  EXPECT_ERROR(make_vit({.image = 30}), "[vit] image 30 is not a multiple of patch 16; change one of them");
  EXPECT_ERROR(make_vit({.width = 10, .heads = 3}), "[vit] width 10 is not a multiple of heads 3; change one of them");
  EXPECT_ERROR(make_vit({.classes = 0}), "must each be 1 or more");
  EXPECT_ERROR(make_vit({.dropout = 1}), "dropout is 1");
}

}  // namespace
}  // namespace remat::zoo
