// Losses of heads in tiles beside those of whole logits.
#include "cli/head_loss.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/memory.h>

#include "cli/training_data.h"
#include "support/compare.h"
#include "support/known_processor.h"
#include "zoo/bert.h"
#include "zoo/decoder.h"
#include "zoo/gpt.h"
#include "zoo/moe.h"

namespace remat::cli {
namespace {

using test::Outcome;

struct LanguageModel {
  std::string name;
  std::function<std::shared_ptr<zoo::Model>()> make;
  bool has_head = true;
};

zoo::DecoderConfig small_decoder(bool tied, double cap) {
  return {.layers = 1,
          .width = 32,
          .heads = 2,
          .key_heads = 1,
          .head_width = 16,
          .hidden = 64,
          .vocab = 600,
          .tied = tied,
          .rotary = {.width = 16},
          .logit_cap = cap};
}

zoo::BertConfig small_bert(zoo::BertHead head) {
  return {.layers = 1, .width = 32, .heads = 2, .hidden = 64, .vocab = 600, .head = head};
}

std::vector<LanguageModel> language_models() {
  return {
      {"gpt", [] { return zoo::make_gpt({.layers = 1, .width = 32, .heads = 2, .seq = 100, .vocab = 600}); }},
      {"decoder, tied", [] { return zoo::make_decoder(small_decoder(true, 0)); }},
      {"decoder", [] { return zoo::make_decoder(small_decoder(false, 0)); }},
      {"decoder, capped", [] { return zoo::make_decoder(small_decoder(true, 5)); }, /*has_head=*/false},
      {"moe",
       [] { return zoo::make_moe({.layers = 1, .width = 32, .heads = 2, .hidden = 64, .seq = 100, .vocab = 600}); }},
      {"bert", [] { return zoo::make_bert(small_bert(zoo::BertHead::kMaskedTokens)); }},
  };
}

/// Three examples of 100 tokens each, of which some count for nothing.
Batch batch_for(const std::string& name) {
  Batch batch{torch::randint(0, 600, {3, 100}, at::kLong), torch::randint(0, 600, {3, 100}, at::kLong)};
  batch.target.narrow(1, 0, 30).fill_(kNoTarget);
  if (name == "bert") {
    batch.input = at::stack({batch.input, at::zeros_like(batch.input), at::ones_like(batch.input)}, 1);
  }
  return batch;
}

Outcome outcome_of(const LanguageModel& of, HeadLoss& loss) {
  return test::run_seeded([&] {
    const auto model = of.make();
    const Batch batch = batch_for(of.name);
    return test::backward_of(model->parameters(), loss(*model, batch.input, batch.target));
  });
}

/// Written by hand.
Outcome plain_outcome(const LanguageModel& of) {
  return test::run_seeded([&] {
    const auto model = of.make();
    const Batch batch = batch_for(of.name);
    return test::backward_of(model->parameters(),
                             at::cross_entropy_loss(model->forward(batch.input).flatten(0, 1), batch.target.flatten()));
  });
}

TEST(HeadLossTest, HasTheBitsOfPlainInEachModelAndInEachWay) {
  for (const LanguageModel& of : language_models()) {
    const Outcome expected = plain_outcome(of);
    for (const char* how : {kHeadAuto, kHeadTiles, kHeadWhole}) {
      HeadLoss loss(how);
      const std::string what = of.name + ", " + how;
      test::expect_same_bits(expected, outcome_of(of, loss), what);
      const bool tiles = how == std::string(kHeadTiles);
      const bool tells = tiles || (of.has_head && how == std::string(kHeadAuto));
      ASSERT_EQ(loss.choice().has_value(), tells) << what;
      if (tells && (!tiles || test::has_tiles())) {
        EXPECT_EQ(loss.choice()->is_whole(), !tiles || !of.has_head) << what << head_text(*loss.choice());
      }
    }
  }
}

TEST(HeadLossTest, SaysWhyLogitsAreWhole) {
  torch::manual_seed(0);
  const auto model = zoo::make_gpt({.layers = 1, .width = 32, .heads = 2, .seq = 100, .vocab = 600});
  const auto why = [&](const char* how, int64_t examples) {
    HeadLoss loss(how);
    const at::Tensor tokens = torch::zeros({examples, 100}, at::kLong);
    loss(*model, tokens, tokens);
    return head_text(*loss.choice());
  };
  EXPECT_EQ(why(kHeadTiles, 2), "whole: 200 tokens are fewer than two tiles, 208");
  EXPECT_EQ(why(kHeadAuto, 3), "whole: logits are smaller than 16 MiB");
  if (test::has_tiles()) {
    EXPECT_EQ(why(kHeadAuto, 80).substr(0, 8), "tiles of");
  }
}

TEST(HeadLossTest, ComparesStepsInTilesAndWholeWhereTheBudgetHasRoom) {
  if (!test::has_tiles()) GTEST_SKIP() << "there may be no tiles to compare with on this processor";
  const int64_t examples = 80;  // 19 MB of logits
  const auto reasons_within = [&](const Budget& budget) {
    torch::manual_seed(0);
    const auto model = zoo::make_gpt({.layers = 1, .width = 16, .heads = 2, .seq = 100, .vocab = 600, .dropout = 0});
    const at::Tensor tokens = torch::randint(0, 600, {examples, 100}, at::kLong);
    Session session({.budget = budget});
    HeadLoss loss(kHeadAuto, HeadLoss::may_compare(budget));
    std::vector<std::string> reasons;
    std::vector<float> losses;
    for (int i = 0; i < 2 * HeadTrial::kSteps + 1; ++i) {
      model->zero_grad();
      auto step = session.step();
      const at::Tensor value = loss(*model, tokens, tokens);
      value.backward();
      losses.push_back(value.item<float>());
      loss.note(step.end(), session);
      reasons.push_back(head_text(*loss.choice()));
    }
    EXPECT_EQ(std::ranges::count(losses, losses.front()), std::ssize(losses)) << "dropout is 0";
    return reasons;
  };
  const auto roomy = reasons_within(Budget::bytes(int64_t{1} << 30));
  for (size_t i = 0; i < HeadTrial::kSteps; ++i) EXPECT_EQ(roomy[i].substr(0, 8), "tiles of") << i;
  for (size_t i = HeadTrial::kSteps; i < 2 * HeadTrial::kSteps; ++i) {
    EXPECT_EQ(roomy[i], "whole: the budget has room, and steps are compared") << i;
  }
  EXPECT_TRUE(roomy.back().starts_with("tiles of") || roomy.back().starts_with("whole: the shortest step took "))
      << roomy.back();
  EXPECT_EQ(reasons_within(Budget::bytes(memory::current() + (60 << 20))).back().substr(0, 8), "tiles of");
  EXPECT_FALSE(HeadLoss::may_compare(Budget::percent(50)));
  EXPECT_FALSE(HeadLoss::may_compare(std::nullopt));
  EXPECT_TRUE(HeadLoss::may_compare(Budget()));
}

TEST(HeadLossTest, OfATaskHasTheBitsOfItsCriterion) {
  const auto outcome = [](const char* task, const char* how, bool& tiled) {
    return test::run_seeded([&] {
      const zoo::Task made = zoo::make_task(task, {.batch = 2, .length = 128, .depth = 1, .width = 64});
      HeadLoss loss(how);
      const at::Tensor value = loss(made);
      tiled = loss.choice() && !loss.choice()->is_whole();
      return test::backward_of(made.model->parameters(), value);
    });
  };
  bool tiled = false;
  const Outcome expected = outcome("gpt", kHeadWhole, tiled);
  EXPECT_FALSE(tiled);
  test::expect_same_bits(expected, outcome("gpt", kHeadTiles, tiled), "gpt");
  EXPECT_TRUE(tiled || !test::has_tiles());
  HeadLoss loss(kHeadTiles);
  const zoo::Task other = zoo::make_task("mlp", {.batch = 2, .depth = 1, .width = 8});
  EXPECT_EQ(loss(other).item<float>(), other.loss().item<float>());
  EXPECT_EQ(head_text(*loss.choice()), "whole: the model ends in no head, or changes what it gives");
}

}  // namespace
}  // namespace remat::cli
