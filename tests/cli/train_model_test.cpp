#include "cli/train_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <remat/error.h>

#include "support/expect_error.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

TEST(TrainModelTest, ParametersAreCountedWithoutBuilding) {
  for (const auto* kind : {"gpt", "mlp"}) {
    for (const ModelSettings& settings :
         {ModelSettings{.kind = kind, .layers = 1, .width = 4, .heads = 2, .seq = 1},
          ModelSettings{.kind = kind, .layers = 3, .width = 24, .heads = 4, .seq = 7}}) {
      EXPECT_EQ(parameter_count(settings), make_model(settings)->parameter_count()) << kind << settings.layers;
    }
  }
}

data::Labels labels(int64_t count) {
  data::Labels labels;
  for (int64_t i = 0; i < count; ++i) labels.names.push_back(std::to_string(i));
  return labels;
}

TEST(TrainModelTest, ModelsForPicturesHaveAClassForEachLabel) {
  for (const int64_t side : {0, 32, 64}) {
    const auto image = at::zeros({2, 3, side == 0 ? 32 : side, side == 0 ? 32 : side});
    for (const auto* kind : {"vit", "resnet18", "resnet20", "resnet50", "efficientnet"}) {
      const ModelSettings settings{.kind = kind, .layers = 2, .width = 24, .heads = 4, .image_size = side};
      const auto model = make_model(settings, labels(7));
      EXPECT_EQ(parameter_count(settings, labels(7)), model->parameter_count()) << kind << side;
      EXPECT_EQ(model->forward(image).sizes(), (at::IntArrayRef{2, 7})) << kind << side;
      if (kind == std::string("resnet18")) {  // large pictures are halved at once, small ones are not
        EXPECT_EQ(model->named_parameters()["stem.weight"].size(2), side == 64 ? 7 : 3);
      }
    }
  }
}

TrainSettings training_of(ModelSettings model) {
  TrainSettings settings;
  settings.model = std::move(model);
  return settings;
}

TEST(TrainModelTest, AModelThatTheMachineCannotHoldIsRefused) {
  const TrainSettings settings = training_of({.kind = "mlp", .layers = 3, .width = 24, .seq = 7});
  const int64_t need = 16 * parameter_count(settings.model);
  check_model_fits(settings, {}, need);
  EXPECT_ERROR(check_model_fits(settings, {}, need - 1),
               "[train] 3 layers of width 24 have " + std::to_string(need / 16) + " parameters, which need ");
  EXPECT_ERROR(check_model_fits(settings, {}, need - 1),
               std::to_string(need - 1) + " bytes); lower --layers or --width");
}

TEST(TrainModelTest, ABudgetBelowParametersAndGradientsIsRefused) {
  const TrainSettings settings = training_of({.kind = "mlp", .layers = 3, .width = 24, .seq = 7});
  const int64_t least = 8 * parameter_count(settings.model), machine = int64_t{1} << 40;
  check_model_fits(settings, Budget::bytes(least), machine);
  check_model_fits(settings, Budget::percent(1), machine);
  EXPECT_THROW(check_model_fits(settings, Budget::bytes(least - 1), machine), BudgetError);
}

// Each is said to be there by the message where it counts.
TEST(TrainModelTest, WhatIsFreedAtOnceOrInAFileNeedsNoMemory) {
  TrainSettings settings = training_of({.kind = "mlp", .layers = 3, .width = 24, .seq = 7});
  const int64_t count = parameter_count(settings.model), machine = int64_t{1} << 40;
  const auto expect = [&](int64_t step, int64_t training, const std::string& what) {
    check_model_fits(settings, Budget::bytes(step * count), training * count);
    EXPECT_THROW(check_model_fits(settings, Budget::bytes(step * count - 1), machine), BudgetError) << what;
    EXPECT_ERROR(check_model_fits(settings, {}, training * count - 1), " bytes)" + what + "; the machine has ");
  };
  expect(8, 16, " with gradients and optimizer state");
  settings.optimizer_in_backward = true;
  expect(4, 12, " with optimizer state");
  settings.page_optimizer = "/scratch";
  expect(4, 4, "");
  settings.accumulate = 2;  // then gradients stay until the last micro-batch
  expect(8, 8, " with gradients");
}

TEST(TrainModelTest, FrozenWeightsNeedNoGradientsAndNoOptimizer) {
  const TrainSettings settings = training_of(
      {.kind = "gpt", .layers = 3, .width = 24, .heads = 2, .seq = 7, .lora = {.rank = 2, .targets = "up,down"}});
  const int64_t weights = parameter_count(settings.model), need = 4 * weights;
  check_model_fits(settings, Budget::bytes(need), need);
  EXPECT_THROW(check_model_fits(settings, Budget::bytes(need - 1), need), BudgetError);
  EXPECT_ERROR(check_model_fits(settings, {}, need - 1), std::to_string(need) + " bytes); the machine has ");
  const auto model = make_model(settings.model);
  EXPECT_EQ(model->trained_parameter_count(), 3 * 2 * 2 * (24 + 96));
  EXPECT_EQ(model->parameter_count(), weights + model->trained_parameter_count());
}

// With every option at its bound the count is still a number.
TEST(TrainModelTest, TheLargestModelsAreCounted) {
  for (const auto* kind : {"gpt", "mlp"}) {
    const TrainSettings settings =
        training_of({.kind = kind, .layers = kMostLayers, .width = kMostWidth, .heads = 1, .seq = kMostSeq});
    EXPECT_ERROR(check_model_fits(settings, {}, int64_t{1} << 50), "lower --layers");
  }
}

TEST(TrainModelTest, OtherModelsAreRefused) {
  EXPECT_ERROR(make_model({.kind = "rnn"}), "there is no model 'rnn'");
  EXPECT_ERROR(parameter_count({.kind = "rnn"}), "there is no model 'rnn' for this task; use gpt or mlp");
  EXPECT_ERROR(make_model({.kind = "gpt"}, labels(2)), "there is no model 'gpt' for this task; use resnet18,");
}

}  // namespace
}  // namespace remat::cli
