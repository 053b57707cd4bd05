#include "cli/recording.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::cli {
namespace {

RecordSettings settings(const std::string& model, int64_t batch, int64_t steps) {
  return {.model = model, .out = "", .save_run = "", .budget = "device", .steps = steps, .batch = batch};
}

TEST(RecordingTest, EveryModelIsThere) {
  std::vector<std::string> names;
  for (const auto& model : recordable_models()) names.push_back(model.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bert", "deep", "dense", "efficientnet", "gpt", "lstm", "mlp", "moe",
                                             "resnet", "unet", "vit"}));
}

TEST(RecordingTest, TheGraphIsOfTheWholeStep) {
  const auto recording = record_steps(settings("mlp", 2, 2));
  const Graph& graph = recording.run.graph;
  EXPECT_EQ(graph.problem(), "");
  EXPECT_EQ(recording.batch, 2);
  EXPECT_GT(recording.values_saved, 40);
  EXPECT_GT(graph.operators.size(), 80u);  // 40 blocks of two, and a loss
  // 40 layers of 1024 x 1024 weights and 1024 biases, with gradients, before the step begins.
  EXPECT_GE(graph.baseline_bytes, 2 * 40 * (1024 * 1024 + 1024) * 4);
  EXPECT_GT(graph.step_seconds, 0);
  double forward = 0;
  for (const auto& op : graph.operators) forward += op.seconds;
  EXPECT_GT(graph.step_seconds, forward / 2);
}

TEST(RecordingTest, ABudgetLeavesTheGraphAsItIs) {
  const auto free = record_steps(settings("mlp", 64, 1));
  auto tight = settings("mlp", 64, 2);
  tight.budget = "60%";
  const auto pressed = record_steps(tight);
  EXPECT_EQ(free.run.graph.fingerprint(), pressed.run.graph.fingerprint());
  EXPECT_EQ(free.run.graph.events, pressed.run.graph.events);
}

TEST(RecordingTest, WhatCannotBeIsAnError) {
  EXPECT_ERROR(record_steps(settings("rnn", 1, 1)), "there is no task 'rnn'");
  auto small = settings("mlp", 1, 1);
  small.budget = "1MB";
  EXPECT_THROW(record_steps(small), BudgetError);
}

}  // namespace
}  // namespace remat::cli
