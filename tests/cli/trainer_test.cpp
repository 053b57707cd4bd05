// A step of the trainer against the same written by hand.
#include "cli/trainer.h"

#include <bit>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/error.h>
#include <remat/memory.h>

#include "cli/text_data.h"
#include "cli/train_model.h"
#include "support/known_processor.h"
#include "support/temporary_directory.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

struct ByHand {
  std::vector<float> losses;
  Fingerprints gradients, parameters;  ///< of the last step
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    std::string text;
    for (int i = 0; text.size() < 4000; ++i) text += std::to_string(i * i % 997) + " of ";
    directory_.write("text", text);
    settings_.data = directory_.path("text");
    settings_.model = {.kind = "gpt", .layers = 2, .width = 16, .heads = 2, .seq = 12, .dropout = 0.1};
    settings_.batch = 10;
    settings_.lr = 1e-2;
    data_.emplace(settings_.data, settings_.model.seq, settings_.seed);
    memory::start_accounting();  // else the first sqrt() of plain PyTorch has other bits in some processes
  }

  /// Two steps, each of micro-batches with so many examples; their loss is the sum over its examples by all of them.
  ByHand by_hand(const std::vector<int64_t>& micro_batches, const std::vector<double>& rates = {1e-2, 1e-2}) const {
    torch::manual_seed(settings_.seed);
    const auto model = make_model(settings_.model);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(settings_.lr));
    ByHand result;
    for (int64_t step = 1; step <= 2; ++step) {
      int64_t row = 0;
      float sum = 0;
      for (const int64_t count : micro_batches) {
        std::vector<int64_t> tokens;
        for (int64_t end = row + count; row < end; ++row) {
          for (const int64_t token : data_->example(step, row)) tokens.push_back(token);
        }
        const auto batch = torch::tensor(tokens).view({count, settings_.model.seq + 1});
        const auto logits = model->forward(batch.slice(1, 0, -1).contiguous());
        auto loss = at::cross_entropy_loss(logits.flatten(0, -2), batch.slice(1, 1).reshape({-1}));
        if (count != settings_.batch) loss = loss * (static_cast<double>(count) / static_cast<double>(settings_.batch));
        loss.backward();
        sum += loss.item<float>();
      }
      result.losses.push_back(sum);
      result.gradients.clear();
      for (const auto& item : model->named_parameters()) {
        result.gradients.push_back(fingerprint(item.key(), item.value().grad()));
      }
      if (settings_.clip > 0) torch::nn::utils::clip_grad_norm_(model->parameters(), settings_.clip);
      for (auto& group : optimizer.param_groups()) group.options().set_lr(rates.at(static_cast<size_t>(step - 1)));
      optimizer.step();
      optimizer.zero_grad();
    }
    for (const auto& item : model->named_parameters()) {
      result.parameters.push_back(fingerprint(item.key(), item.value()));
    }
    return result;
  }

  std::vector<StepResult> train(const std::optional<Budget>& budget) const {
    Trainer trainer({.settings = settings_, .data = *data_, .budget = budget, .fingerprints = true});
    std::vector<StepResult> results;
    for (int i = 0; i < 2; ++i) results.push_back(trainer.step());
    return results;
  }

  void expect_same(const ByHand& hand, const std::vector<StepResult>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(results[i].loss), std::bit_cast<uint32_t>(hand.losses[i])) << "step " << i + 1;
    }
    EXPECT_EQ(results.back().gradients, hand.gradients);
    EXPECT_EQ(results.back().parameters, hand.parameters);
  }

  test::TemporaryDirectory directory_;
  TrainSettings settings_;
  std::optional<TextData> data_;
};

TEST_F(TrainerTest, AStepIsThatWrittenByHand) {
  const ByHand hand = by_hand({10});
  expect_same(hand, train(std::nullopt));
  expect_same(hand, train(Budget::percent(60)));
}

TEST_F(TrainerTest, AHeadInTilesHasTheBitsOfThatWrittenByHandAndSaysSo) {
  settings_.model.seq = 60;
  settings_.head = "tiles";
  data_.emplace(settings_.data, settings_.model.seq, settings_.seed);
  const ByHand hand = by_hand({10});
  const auto within = train(Budget::percent(80));
  expect_same(hand, within);
  ASSERT_TRUE(within.back().head);
  EXPECT_FALSE(test::has_tiles() && within.back().head->is_whole()) << within.back().head->reason;
  EXPECT_FALSE(train(std::nullopt).back().head) << "plain is without remat";
}

TEST_F(TrainerTest, AnEvaluationIsTheSameWithAHeadInTiles) {
  settings_.model.seq = 250;
  std::vector<double> losses;
  for (const char* how : {"whole", "tiles"}) {
    settings_.head = how;
    const TextData data(settings_.data, settings_.model.seq, settings_.seed);
    Trainer trainer({.settings = settings_, .data = data, .budget = Budget(), .held_out = &data});
    losses.push_back(trainer.evaluate()->loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_FALSE(test::has_tiles() && last_tile_choice().is_whole()) << last_tile_choice().reason;
}

TEST_F(TrainerTest, MicroBatchesAreThoseWrittenByHandAlsoWhereTheLastIsShort) {
  settings_.accumulate = 4;
  const ByHand hand = by_hand({3, 3, 3, 1});
  expect_same(hand, train(std::nullopt));
  expect_same(hand, train(Budget::percent(80)));
}

TEST_F(TrainerTest, GradientsAreClippedAndTheLearningRateRises) {
  settings_.clip = 0.1;
  settings_.warmup = 4;
  const ByHand hand = by_hand({10}, {0.25e-2, 0.5e-2});
  expect_same(hand, train(std::nullopt));
}

TEST_F(TrainerTest, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  settings_.model.dropout = 0;
  const auto whole = train(std::nullopt);
  settings_.accumulate = 4;
  const auto parts = train(std::nullopt);
  EXPECT_NEAR(parts[0].loss, whole[0].loss, 1e-6);
  EXPECT_NEAR(parts[1].loss, whole[1].loss, 1e-3) << "after an update";
}

TEST_F(TrainerTest, OneMicroBatchAtATimeIsAlive) {
  settings_.batch = 256;
  const auto peak = [&] { return train(Budget()).back().report->plain_activation_peak_bytes(); };
  const int64_t whole = peak();
  settings_.accumulate = 8;
  EXPECT_LT(peak(), whole / 4);
}

TEST_F(TrainerTest, UpdatesInBackwardGiveTheParametersOfThoseAfterIt) {
  settings_.accumulate = 4;
  settings_.warmup = 4;
  ByHand hand = by_hand({3, 3, 3, 1}, {0.25e-2, 0.5e-2});
  hand.gradients.clear();  // they are freed when they are used
  settings_.optimizer_in_backward = true;
  expect_same(hand, train(std::nullopt));
  expect_same(hand, train(Budget::percent(80)));
}

TEST_F(TrainerTest, AStepThatFailsInTheMiddleOfItsUpdatesSaysSoAndIsNotTriedAgain) {
  settings_.optimizer_in_backward = true;
  settings_.batch = 1;  // the optimizer's state takes more than activations
  int64_t failed_before = 0, failed_between = 0;
  for (int64_t budget = 90'000; failed_between == 0 && budget < 400'000; budget += 500) {
    Trainer trainer({.settings = settings_, .data = *data_, .budget = Budget::bytes(budget)});
    try {
      trainer.step();
    } catch (const BudgetError&) {
      if (!trainer.is_between_steps()) {
        ++failed_before;
        continue;
      }
      ++failed_between;
      EXPECT_THROW(trainer.step(), Error);
      EXPECT_TRUE(trainer.is_between_steps());
    }
  }
  EXPECT_GT(failed_before, 0);
  EXPECT_EQ(failed_between, 1);
}

TEST_F(TrainerTest, HalfPrecisionChangesLossesAndRematDoesNot) {
  settings_.model.layers = 12;  // most bytes are those of blocks, not of the predictions
  const auto exact = train(std::nullopt);
  settings_.precision = "bf16";
  const auto half = train(std::nullopt);
  EXPECT_NE(std::bit_cast<uint32_t>(half[0].loss), std::bit_cast<uint32_t>(exact[0].loss));
  EXPECT_NEAR(half[0].loss, exact[0].loss, 0.05);
  const auto within = train(Budget::percent(75));
  for (size_t i = 0; i < half.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(within[i].loss), std::bit_cast<uint32_t>(half[i].loss));
  }
  EXPECT_EQ(within.back().parameters, half.back().parameters);
}

}  // namespace
}  // namespace remat::cli
