#include "cli/training_loop.h"

#include <limits>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::cli {
namespace {

TEST(TrainingLoop, TheFirstLossIsNotBlamedOnTheLearningRate) {
  StepResult result;
  result.step = 1;
  result.loss = 3;
  EXPECT_NO_THROW(check_loss(result));
  result.loss = std::numeric_limits<float>::infinity();
  EXPECT_ERROR(check_loss(result), "in step 1, before anything was learned; look at the data and at the weights");
  result.step = 2;
  EXPECT_ERROR(check_loss(result), "in step 2; lower --lr");
}

}  // namespace
}  // namespace remat::cli
