#include "cli/settings.h"

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

TrainSettings schedule_of(const std::string& name, int64_t warmup, int64_t steps) {
  TrainSettings settings;
  settings.lr = 0.5;
  settings.schedule = name;
  settings.warmup = warmup;
  settings.steps = steps;
  return settings;
}

TEST(LearningRate, IsConstantUnlessAskedFor) {
  const TrainSettings settings = schedule_of(TrainSettings().schedule, 0, 10);
  for (const int64_t step : {1, 5, 10, 11}) EXPECT_EQ(learning_rate(settings, step), 0.5);
}

TEST(LearningRate, RisesFirst) {
  const TrainSettings settings = schedule_of("constant", 5, 10);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 6), 0.5);
}

TEST(LearningRate, FallsAlongACosine) {
  const TrainSettings settings = schedule_of("cosine", 2, 12);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 3), 0.5);
  EXPECT_NEAR(learning_rate(settings, 8), 0.25, 1e-12) << "half way";
  for (int64_t step = 4; step <= 12; ++step)
    EXPECT_LT(learning_rate(settings, step), learning_rate(settings, step - 1));
  EXPECT_GT(learning_rate(settings, 12), 0) << "the last step is one too";
  EXPECT_LT(learning_rate(settings, 12), 0.02);
}

TEST(LearningRate, RisesAllTheWhileWhereWarmUpIsLonger) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule_of("cosine", 8, 4), 4), 0.25);
}

TEST(Decisive, NamesWhatIsNotAsUsual) {
  TrainSettings settings;
  const auto usual = decisive(settings);
  for (const auto* const name : {"accumulate", "precision", "warmup", "schedule", "steps", "weight_decay", "clip"}) {
    EXPECT_FALSE(usual.contains(name)) << name;
  }
  settings.schedule = "cosine";
  settings.clip = 1;
  EXPECT_EQ(decisive(settings)["steps"], settings.steps) << "they decide the learning rate";
  EXPECT_EQ(decisive(settings)["clip"], 1);
}

TEST(DecisiveSettings, OfFactorsAreRankScaleAndLayers) {
  TrainSettings settings;
  EXPECT_FALSE(decisive(settings).contains("lora-alpha"));
  settings.model.lora = {.rank = 8, .targets = "query"};
  EXPECT_EQ(decisive(settings)["lora"], 8);
  EXPECT_EQ(decisive(settings)["lora-alpha"], 8.0) << "the rank";
  EXPECT_EQ(decisive(settings)["lora-targets"], "query");
}

TEST(DecisiveSettings, ADirectoryIsTheSameHoweverItIsWritten) {
  const auto written = [](const std::string& path) {
    TrainSettings settings;
    settings.model.directory = path;
    return decisive(settings).at("hf").get<std::string>();
  };
  for (const auto* const path : {"models/bert", "models/bert/", "./models/bert", "models/x/../bert//"}) {
    EXPECT_EQ(written(path), "models/bert") << path;
  }
  EXPECT_EQ(written("/models/bert/"), "/models/bert");
  EXPECT_EQ(written("."), written("./"));
  EXPECT_NE(written("bert"), written("models/bert"));
}

}  // namespace
}  // namespace remat::cli
