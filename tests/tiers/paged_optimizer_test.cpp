// Optimizers whose state is in a file, against the same that keep it in memory.
#include <functional>
#include <optional>
#include <sstream>

#include <unistd.h>

#include <remat/optimizer_in_backward.h>
#include <remat/paged_optimizer.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tiers/open_file.h"
#include "tiers/optimizers.h"

namespace remat::test {
namespace {

enum class Mode { kPlain, kPaged, kPagedInBackward };

struct Trained {
  std::vector<at::Tensor> parameters;
  std::unique_ptr<torch::optim::Optimizer> optimizer;  ///< with its state in memory
  PagingReport report;
};

Trained train(const Kind& kind, Mode mode, const std::string& directory, int steps = 3) {
  auto parameters = make_parameters();
  auto optimizer = kind.make(parameters);
  PagingReport report;
  {
    std::optional<PagedOptimizer> paged;
    std::optional<OptimizerInBackward> in_backward;
    if (mode != Mode::kPlain) paged.emplace(*optimizer, directory);
    if (mode == Mode::kPagedInBackward) in_backward.emplace(*optimizer);
    for (int step = 0; step < steps; ++step) {
      loss_of(parameters, step).backward();
      if (mode == Mode::kPlain) optimizer->step();
      if (mode == Mode::kPaged) paged->step();
      optimizer->zero_grad();
    }
    if (paged) report = paged->report();
  }
  return {std::move(parameters), std::move(optimizer), report};
}

void expect_same(const Kind& kind, const std::vector<at::Tensor>& parameters, torch::optim::Optimizer& optimizer,
                 const Trained& expected) {
  EXPECT_EQ(optimizer.state().size(), expected.optimizer->state().size()) << kind.name;
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters[i], expected.parameters[i])) << kind.name << ", parameter " << i;
    const auto state = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
    if (state == optimizer.state().end()) continue;
    const auto& other = expected.optimizer->state().at(expected.parameters[i].unsafeGetTensorImpl());
    EXPECT_TRUE(kind.equal(*state->second, *other)) << kind.name << ", state " << i;
  }
}

TEST(PagedOptimizers, HaveTheBitsOfPlainOnes) {
  const TemporaryDirectory directory;
  for (const auto& each : kinds()) {
    const auto plain = train(each, Mode::kPlain, "");
    for (const auto mode : {Mode::kPaged, Mode::kPagedInBackward}) {
      const auto paged = train(each, mode, directory.path(""));
      expect_same(each, paged.parameters, *paged.optimizer, plain);
      if (std::string(each.name) != "SGD") {
        EXPECT_GE(paged.report.read_bytes, 2 * 4 * (128 * 200 + (1 << 12) * 600)) << each.name;
      }
    }
  }
}

TEST(PagedOptimizers, GoOnFromWhatWasLoaded) {
  const TemporaryDirectory directory;
  const auto expected = train(adamw(), Mode::kPlain, "", 5);

  auto parameters = make_parameters();
  std::stringstream checkpoint;
  {
    const auto optimizer = adamw().make(parameters);
    PagedOptimizer paged(*optimizer, directory.path(""));
    for (int step = 0; step < 2; ++step) {
      optimizer->zero_grad();
      loss_of(parameters, step).backward();
      paged.step();
    }
    paged.with_state([&] { torch::save(*optimizer, checkpoint); });
  }
  const auto optimizer = adamw().make(parameters);
  PagedOptimizer paged(*optimizer, directory.path(""));
  paged.with_state([&] { torch::load(*optimizer, checkpoint); });
  EXPECT_GT(paged.report().paged_bytes, 0);
  for (int step = 2; step < 5; ++step) {
    optimizer->zero_grad();
    const auto loss = paged.step([&] {
      auto of_step = loss_of(parameters, step);
      of_step.backward();
      return of_step;
    });
    EXPECT_TRUE(loss.defined());
  }
  paged.with_state([&] { expect_same(adamw(), parameters, *optimizer, expected); });
}

TEST(PagedOptimizers, GoOnInMemoryWhereThereIsNoRoom) {
  const TemporaryDirectory directory;
  const auto expected = train(adamw(), Mode::kPlain, "");
  auto parameters = make_parameters();
  const auto optimizer = adamw().make(parameters);
  PagedOptimizer paged(*optimizer, directory.path(""), 1 << 20);
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    loss_of(parameters, step).backward();
    paged.step();
  }
  EXPECT_GT(paged.report().unwritten_bytes, 0);
  EXPECT_LE(paged.report().file_bytes, 1 << 20);
  paged.with_state([&] { expect_same(adamw(), parameters, *optimizer, expected); });
}

TEST(PagedOptimizers, UpdateNoParameterWhoseStateIsLost) {
  const TemporaryDirectory directory;
  auto parameters = make_parameters();
  parameters.resize(1);
  const auto optimizer = adamw().make(parameters);
  PagedOptimizer paged(*optimizer, directory.path(""));
  loss_of(parameters, 0).backward();
  paged.step();
  ASSERT_EQ(::ftruncate(descriptor_in(directory.path("")), 4096), 0);
  const auto before = parameters[0].detach().clone();
  EXPECT_ERROR(paged.step(), "[paged] 102400 bytes could not be read from a file in ");
  EXPECT_TRUE(torch::equal(parameters[0], before));
}

TEST(PagedOptimizers, RefuseWhatTheyCannotServe) {
  const TemporaryDirectory directory;
  auto parameters = make_parameters();
  torch::optim::LBFGS lbfgs(parameters);
  EXPECT_ERROR(PagedOptimizer(lbfgs, directory.path("")),
               "[paged] this optimizer may look at several parameters at once");
  torch::optim::AdamW optimizer(parameters);
  EXPECT_ERROR(PagedOptimizer(optimizer, directory.path("none")), "no file can be made in");
  PagedOptimizer paged(optimizer, directory.path(""));
  EXPECT_EQ(PagedOptimizer::of(optimizer), &paged);
  EXPECT_ERROR(PagedOptimizer(optimizer, directory.path("")),
               "[paged] the state of this optimizer is in a file already");
  EXPECT_EQ(PagedOptimizer::of(optimizer), &paged);
  auto embedding = torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 4).sparse(true));
  torch::optim::SGD sgd(embedding->parameters(), torch::optim::SGDOptions(0.1));
  PagedOptimizer sparse(sgd, directory.path(""));
  embedding->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_ERROR(sparse.step(), "[paged] a parameter of shape [4, 4] has a sparse gradient");
}

}  // namespace
}  // namespace remat::test
