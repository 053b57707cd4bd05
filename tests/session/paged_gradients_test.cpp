// Gradients that wait in a file, against those in memory.
#include <remat/error.h>
#include <remat/memory.h>
#include <remat/paged_gradients.h>
#include <remat/paged_optimizer.h>
#include <remat/session.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tiers/optimizers.h"

namespace remat::test {
namespace {

struct How {
  int passes = 1;     ///< that add up to a step
  double clip = 0;    ///< 0: not
  int clippings = 1;  ///< one after another
  bool paged_state = false;
  bool in_session = false;
};

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> norms = {};
  int64_t most_defined = 0;  ///< gradients in memory after a backward pass
  PagingReport report = {};
};

Trained train(const Kind& kind, const How& how, const std::string& directory) {
  Trained trained{.parameters = make_parameters()};
  const auto optimizer = kind.make(trained.parameters);
  std::optional<PagedGradients> gradients;
  std::optional<PagedOptimizer> state;
  if (!directory.empty()) gradients.emplace(*optimizer, directory);
  if (!directory.empty() && how.paged_state) state.emplace(*optimizer, directory);
  Session session;
  for (int step = 0; step < 3; ++step) {
    for (int pass = 0; pass < how.passes; ++pass) {
      std::optional<Step> in_session;
      if (how.in_session) in_session.emplace(session.step());
      loss_of(trained.parameters, step + 10 * pass).backward();
      if (in_session) in_session->end();
      const int64_t defined =
          std::ranges::count_if(trained.parameters, [](const auto& p) { return p.grad().defined(); });
      trained.most_defined = std::max(trained.most_defined, defined);
    }
    for (int i = 0; how.clip > 0 && i < how.clippings; ++i) {
      trained.norms.push_back(gradients ? gradients->clip_norm(how.clip)
                                        : torch::nn::utils::clip_grad_norm_(trained.parameters, how.clip));
    }
    gradients ? gradients->step() : static_cast<void>(optimizer->step());
    optimizer->zero_grad();
  }
  if (gradients) trained.report = gradients->report();
  return trained;
}

TEST(PagedGradients, HaveTheBitsOfThoseInMemory) {
  const TemporaryDirectory directory;
  for (const How& how :
       {How{}, How{.passes = 3}, How{.clip = 0.01}, How{.passes = 2, .clip = 0.01, .paged_state = true},
        How{.clip = 0.01, .clippings = 2}, How{.clip = 1e6}, How{.passes = 2, .in_session = true}}) {
    for (const Kind& kind : kinds()) {
      const Trained plain = train(kind, how, ""), paged = train(kind, how, directory.path(""));
      EXPECT_EQ(paged.norms, plain.norms) << kind.name;
      for (size_t i = 0; i < plain.parameters.size(); ++i) {
        ASSERT_TRUE(paged.parameters[i].equal(plain.parameters[i]))
            << kind.name << ", parameter " << i << ", clip " << how.clip << ", passes " << how.passes;
      }
      EXPECT_EQ(plain.most_defined, 3);
      EXPECT_EQ(paged.most_defined, 1) << "the one that is small";
      const int64_t bytes = 4 * (128 * 200 + (1 << 12) * 600);
      EXPECT_EQ(paged.report.written_bytes, 3 * bytes * (how.passes + how.clippings - 1)) << kind.name;
      EXPECT_EQ(paged.report.paged_bytes, 0);
    }
  }
}

TEST(PagedGradients, AreForgottenWhenTheyAreToBeZero) {
  const TemporaryDirectory directory;
  const auto plain = make_parameters(), ours = make_parameters();
  torch::optim::SGD expected(plain, 0.1), optimizer(ours, 0.1);
  PagedGradients gradients(optimizer, directory.path(""));
  loss_of(ours, 5).backward();
  EXPECT_GT(gradients.clip_norm(0.1), 0);
  gradients.zero();
  EXPECT_EQ(gradients.clip_norm(0.1), 0);
  loss_of(plain, 1).backward();
  loss_of(ours, 1).backward();
  expected.step();
  gradients.step();
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(ours[i].equal(plain[i])) << i;
}

TEST(PagedGradients, AreThereStillWhereAnUpdateHasFailed) {
  const TemporaryDirectory directory;
  torch::manual_seed(4);
  const auto make = [] {
    torch::manual_seed(4);
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 3; ++i) parameters.push_back(torch::randn({512, 1024}).requires_grad_());  // 2 MiB
    return parameters;
  };
  const auto options = torch::optim::SGDOptions(0.1).weight_decay(0.1);
  const auto plain = make(), ours = make();
  torch::optim::SGD expected(plain, options), optimizer(ours, options);
  PagedGradients gradients(optimizer, directory.path(""));
  loss_of(plain, 1).backward();
  torch::nn::utils::clip_grad_norm_(plain, 0.01);
  expected.step();
  loss_of(ours, 1).backward();
  gradients.clip_norm(0.01);
  int failed = 0;
  for (int64_t room = 64 << 10; room < (8 << 20); room += 512 << 10) {  // where it is read, and where it is decayed
    Session session({.budget = Budget::bytes(memory::current() + room)});
    auto step = session.step();
    try {
      gradients.step();
    } catch (const BudgetError&) {
      ++failed;
    }
    step.end(/*completed=*/false);
  }
  EXPECT_GT(failed, 1);
  gradients.step();
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(ours[i].equal(plain[i])) << i;
}

TEST(PagedGradients, ThatAreSparseStayInMemory) {
  const TemporaryDirectory directory;
  torch::manual_seed(4);
  const auto plain = torch::randn({1000, 50}).requires_grad_(), ours = plain.detach().clone().requires_grad_();
  torch::optim::SGD expected({plain}, 0.1), optimizer({ours}, 0.1);
  PagedGradients gradients(optimizer, directory.path(""));
  const auto rows = torch::arange(10);
  for (const bool first_is_sparse : {true, false}) {
    for (const bool sparse : {first_is_sparse, !first_is_sparse}) {
      for (const auto& weight : {plain, ours}) torch::embedding(weight, rows, -1, false, sparse).sum().backward();
    }
    expected.step();
    expected.zero_grad();
    gradients.step();
    EXPECT_TRUE(ours.equal(plain)) << first_is_sparse;
  }
}

TEST(PagedGradients, AreNotAllInMemory) {
  memory::start_accounting();
  const TemporaryDirectory directory;
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 12; ++i) parameters.push_back(torch::zeros(1 << 20).requires_grad_());  // 4 MiB each
  torch::optim::SGD optimizer(parameters, 0.1);
  PagedGradients gradients(optimizer, directory.path(""));
  at::Tensor loss = torch::zeros({});
  for (const auto& parameter : parameters) loss = loss + parameter.sum();
  const int64_t before = memory::current();
  memory::reset_peak();
  loss.backward();
  gradients.clip_norm(1);
  gradients.step();
  EXPECT_LE(memory::peak() - before, 5 * (4 << 20));
}

TEST(PagedGradients, AreRefusedWhereTheyCannotBe) {
  const TemporaryDirectory directory;
  auto parameters = make_parameters();
  torch::optim::SGD optimizer(parameters, 0.1);
  EXPECT_ERROR(PagedGradients(optimizer, directory.path("none")), "no file can be made in ");
  torch::optim::LBFGS together({parameters[0]});
  EXPECT_ERROR(PagedGradients(together, directory.path("")), "may look at several parameters at once");
  const PagedGradients gradients(optimizer, directory.path(""));
  EXPECT_ERROR(PagedGradients(optimizer, directory.path("")), "[paged gradients] a parameter of shape ");
  EXPECT_ERROR(loss_of(parameters, 0).backward({}, true, true), "[paged gradients] backward with create_graph");

  const auto others = make_parameters();
  torch::optim::SGD twice({others[0], others[1], others[0]}, 0.1);
  EXPECT_ERROR(PagedGradients(twice, directory.path("")), "is in the optimizer's groups twice; give each once");
  torch::optim::SGD once({others[0], others[1]}, 0.1);
  EXPECT_NO_THROW(PagedGradients(once, directory.path(""))) << "the refused one has left no hooks";
}

}  // namespace
}  // namespace remat::test
