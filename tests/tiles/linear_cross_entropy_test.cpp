// remat::linear_cross_entropy beside at::cross_entropy_loss(at::linear(...)).
#include <remat/linear_cross_entropy.h>
#include <remat/tile_trials.h>

#include <remat/memory.h>

#include "support/compare.h"
#include "support/known_processor.h"

namespace remat::test {
namespace {

struct HeadArguments {
  at::Tensor input, weight, target;
  LinearCrossEntropyOptions options;
};

HeadArguments head_arguments(int64_t tokens, int64_t width, int64_t classes, bool biased) {
  HeadArguments made{torch::randn({tokens, width}).requires_grad_(),
                     (torch::randn({classes, width}) * 0.1).requires_grad_(),
                     torch::randint(0, classes, {tokens}, at::kLong),
                     {}};
  if (biased) made.options.linear_bias = torch::randn({classes}).requires_grad_();
  return made;
}

at::Tensor plain_loss(const HeadArguments& of) {
  return at::cross_entropy_loss(at::linear(of.input, of.weight, of.options.linear_bias), of.target, of.options.weight,
                                of.options.reduction, of.options.ignore_index, of.options.label_smoothing);
}

Outcome head_outcome(bool tiled, int64_t tokens, bool biased, LinearCrossEntropyOptions options = {}) {
  return run_seeded([&] {
    HeadArguments arguments = head_arguments(tokens, 24, 333, biased);
    options.linear_bias = arguments.options.linear_bias;
    arguments.options = options;
    std::vector<at::Tensor> leaves = {arguments.input, arguments.weight};
    if (biased) leaves.push_back(options.linear_bias);
    return backward_of(leaves,
                       (tiled ? linear_cross_entropy(arguments.input, arguments.weight, arguments.target, options)
                              : plain_loss(arguments)));
  });
}

TEST(LinearCrossEntropy, HasTheBitsOfPlain) {
  for (const int64_t tokens : {1, 100, 192, 193, 385, 500}) {
    for (const bool biased : {false, true}) {
      const std::string what = std::to_string(tokens) + (biased ? " tokens, biased" : " tokens");
      expect_same_bits(head_outcome(false, tokens, biased), head_outcome(true, tokens, biased), what);
      EXPECT_GE(last_tile_choice().rows, has_tiles() ? 1 : 0) << what << ": " << last_tile_choice().reason;
      EXPECT_LE(last_tile_choice().rows, std::max<int64_t>(tokens, 1)) << what;
    }
  }
}

TEST(LinearCrossEntropy, HasEveryOption) {
  LinearCrossEntropyOptions options;
  options.weight = torch::rand({333});
  options.reduction = at::Reduction::Sum;
  options.ignore_index = 5;
  options.label_smoothing = 0.25;
  const auto outcome = [&](bool tiled) {
    return run_seeded([&] {
      HeadArguments of = head_arguments(1000, 256, 333, true);
      options.linear_bias = of.options.linear_bias;
      of.options = options;
      return backward_of({of.input, of.weight, options.linear_bias},
                         tiled ? linear_cross_entropy(of.input, of.weight, of.target, options) : plain_loss(of));
    });
  };
  expect_same_bits(outcome(false), outcome(true), "every option");
  EXPECT_FALSE(has_tiles() && last_tile_choice().is_whole()) << last_tile_choice().reason;
}

TEST(LinearCrossEntropy, MakesGradientsByBlocksOfClassesWhereTheseAreMany) {
  for (const int64_t tokens : {400, 800, 1000}) {
    const auto outcome = [&](bool tiled) {
      return run_seeded([&] {
        const HeadArguments of = head_arguments(tokens, 256, 1536, true);
        return backward_of({of.input, of.weight, of.options.linear_bias},
                           tiled ? linear_cross_entropy(of.input, of.weight, of.target, of.options) : plain_loss(of));
      });
    };
    expect_same_bits(outcome(false), outcome(true), std::to_string(tokens) + " tokens");
    if (!has_tiles()) continue;
    EXPECT_GT(last_tile_choice().columns, 0) << last_tile_choice().reason;
    EXPECT_NE(last_tile_choice().reason.find("; gradients by blocks of classes"), std::string::npos);
  }
}

/// The largest that is alive while the gradient of the input alone is made, above what is alive before.
int64_t peak_of_head(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target) {
  const int64_t before = memory::current();
  memory::reset_peak();
  const at::Tensor loss = linear_cross_entropy(input, weight, target);
  torch::autograd::grad({loss}, {input});
  return memory::peak() - before;
}

TEST(LinearCrossEntropy, ATrialOfAFrozenHeadWithManyTokensHoldsLittleMoreThanItsTiles) {
  if (!has_tiles()) GTEST_SKIP() << "there may be no tiles on this processor";
  memory::start_accounting();
  const at::Tensor input = torch::randn({4096, 512}).requires_grad_(), weight = torch::randn({2048, 512}) * 0.1,
                   target = torch::randint(0, 2048, {4096}, at::kLong);
  const int64_t first = peak_of_head(input, weight, target), second = peak_of_head(input, weight, target);
  EXPECT_FALSE(has_tiles() && last_tile_choice().is_whole()) << last_tile_choice().reason;
  EXPECT_LT(first, second + int64_t(2 * input.nbytes()));
  EXPECT_LT(second, int64_t(3 * input.nbytes())) << "the logits take four times as much";
}

TEST(LinearCrossEntropy, ATrialOfATrainedHeadHoldsLittleMoreThanItsTiles) {
  if (!has_tiles()) GTEST_SKIP() << "there may be no tiles on this processor";
  memory::start_accounting();
  const at::Tensor input = torch::randn({800, 64}).requires_grad_(),
                   weight = (torch::randn({20011, 64}) * 0.1).requires_grad_(),
                   target = torch::randint(0, 20011, {800}, at::kLong);
  const auto peak = [&] {
    input.mutable_grad().reset();
    weight.mutable_grad().reset();
    return peak_of_head(input, weight, target);
  };
  const int64_t first = peak(), second = peak();
  EXPECT_FALSE(has_tiles() && last_tile_choice().is_whole()) << last_tile_choice().reason;
  EXPECT_LT(first, 2 * second);
  EXPECT_GE(first, second);
  forget_tile_choices();
  EXPECT_EQ(peak(), first) << "a trial as the first";
  EXPECT_EQ(peak(), second);
}

TEST(LinearCrossEntropy, OfAFrozenHeadHasTheBitsOfPlain) {
  const auto outcome = [](bool tiled) {
    return run_seeded([&] {
      HeadArguments of = head_arguments(700, 72, 1111, true);
      of.weight.set_requires_grad(false);
      of.options.linear_bias.set_requires_grad(false);
      of.options.label_smoothing = 0.25;
      return backward_of({of.input},
                         tiled ? linear_cross_entropy(of.input, of.weight, of.target, of.options) : plain_loss(of));
    });
  };
  expect_same_bits(outcome(false), outcome(true), "a frozen head");
  EXPECT_FALSE(has_tiles() && last_tile_choice().is_whole()) << last_tile_choice().reason;
}

TEST(LinearCrossEntropy, InASessionHasTheBitsOfPlain) {
  const auto program = [](bool tiled) {
    return run_seeded([&] {
      HeadArguments arguments = head_arguments(500, 24, 333, true);
      at::Tensor hidden = arguments.input;
      for (int layer = 0; layer < 24; ++layer) hidden = (hidden * 1.5).tanh();
      HeadArguments head = arguments;
      head.input = hidden;
      return backward_of(
          {arguments.input, arguments.weight, arguments.options.linear_bias},
          tiled ? linear_cross_entropy(hidden, head.weight, head.target, head.options) : plain_loss(head));
    });
  };
  const Outcome expected = program(false);
  Session session({.budget = Budget::parse("70%")});
  for (int i = 0; i < 4; ++i) {
    auto step = session.step();
    expect_same_bits(expected, program(true), "step " + std::to_string(i));
  }
}

TEST(LinearCrossEntropy, ThrowsWhatPlainThrows) {
  HeadArguments arguments = head_arguments(300, 24, 10, false);
  EXPECT_THROW(linear_cross_entropy(arguments.input, arguments.weight, arguments.target + 10), c10::IndexError);
  EXPECT_THROW(linear_cross_entropy(arguments.input, arguments.weight.narrow(1, 0, 9), arguments.target), c10::Error);
}

TEST(LinearCrossEntropy, RefusesDoubleBackward) {
  const HeadArguments of = head_arguments(300, 24, 10, false);
  const at::Tensor loss = linear_cross_entropy(of.input, of.weight, of.target);
  EXPECT_THROW(torch::autograd::grad({loss}, {of.input}, {}, true, /*create_graph=*/true), Error);
}

}  // namespace
}  // namespace remat::test
