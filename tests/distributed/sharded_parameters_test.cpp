// (Of threads in the place of processes: what is left alive is that of all of them.)
#include <optional>

#include <remat/distributed.h>
#include <remat/remat.h>
#include <torch/torch.h>

#include "processes.h"
#include "support/compare.h"

namespace remat::test {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kWidth = 24, kBlocks = 4;

/// The same weights on all ranks, without the generator that they share.
at::Tensor weights(std::vector<int64_t> shape, double phase) {
  const int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kFloat).mul(0.37).add(phase)).sin().mul(0.3).view(shape).requires_grad_();
}

struct Block {
  explicit Block(double phase) : w(weights({kWidth, kWidth}, phase)), b(weights({kWidth}, phase + 1)) {}
  at::Tensor forward(const at::Tensor& x) const { return at::addmm(b, x, w).sin().exp() * 0.5 + x; }
  at::Tensor w, b;
};

struct Model {
  Model() {
    for (int64_t i = 0; i < kBlocks; ++i) blocks.emplace_back(static_cast<double>(i));
  }
  at::Tensor begin(const at::Tensor& x) const { return x * scale; }
  std::vector<Block> blocks;
  at::Tensor scale = weights({kWidth}, 9);
};

at::Tensor input(int rank, int step) { return weights({16, kWidth}, 20.0 + rank + 3 * step).detach(); }

struct Shards {
  Shards(const Model& model, const Group& group) : rest({model.scale}, group) {
    for (const Block& block : model.blocks) blocks.emplace_back(std::vector<at::Tensor>{block.w, block.b}, group);
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> result = {rest.shard()};
    for (const ShardedParameters& block : blocks) result.push_back(block.shard());
    return result;
  }
  ShardedParameters rest;
  std::vector<ShardedParameters> blocks;
};

at::Tensor loss_of(const Model& model, Shards& shards, const at::Tensor& x) {
  return shards.rest.call(
      [&](at::Tensor y) {
        y = model.begin(y);
        for (size_t i = 0; i < model.blocks.size(); ++i) {
          y = shards.blocks[i].call([&](const at::Tensor& z) { return model.blocks[i].forward(z); }, y);
          EXPECT_EQ(model.blocks[i].w.storage().nbytes(), 0) << "freed after its forward pass";
        }
        return y.square().mean();
      },
      x, /*until_backward=*/true);
}

Outcome train(int rank, const Group& group, Session* session, bool drop) {
  const Model model;
  Shards shards(model, group);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    for (const at::Tensor& leaf : shards.leaves()) leaf.mutable_grad().reset();
    std::optional<Step> begun;
    if (session != nullptr) begun.emplace(session->step());
    {
      std::optional<PolicyScope> scope;
      if (drop) scope.emplace(Policy::drop_all());
      const at::Tensor loss = loss_of(model, shards, input(rank, step));
      loss.backward();
      outcome.add("loss", loss.detach());
    }
    if (begun) {
      const StepReport report = begun->end();
      EXPECT_EQ(report.values_dropped > 0, drop);
    }
    for (const Block& block : model.blocks) {
      EXPECT_EQ(block.w.storage().nbytes(), 0) << "freed after its backward pass";
      EXPECT_FALSE(block.w.grad().defined());
    }
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& leaf : shards.leaves()) {
      outcome.add("gradient", leaf.grad().clone());
      leaf.sub_(leaf.grad(), 0.1);
      outcome.add("shard", leaf.clone());
    }
  }
  return outcome;
}

TEST(ShardedParameters, GradientsAreTheMeansOfTheRanks) {
  // Each rank's gradients of a model that is whole.
  std::vector<std::vector<at::Tensor>> whole;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Model model;
    at::Tensor y = model.begin(input(rank, 0));
    for (const Block& block : model.blocks) y = block.forward(y);
    y.square().mean().backward();
    whole.push_back({model.scale.grad()});
    for (const Block& block : model.blocks) whole.back().push_back(at::cat({block.w.grad().flatten(), block.b.grad()}));
  }
  on_ranks(kRanks, [&](int rank, const auto& join) {
    const Model model;
    Shards shards(model, join("model"));
    loss_of(model, shards, input(rank, 0)).backward();
    const std::vector<at::Tensor> leaves = shards.leaves();
    for (size_t i = 0; i < leaves.size(); ++i) {
      const at::Tensor mean = (whole[0][i] + whole[1][i]) / kRanks;
      EXPECT_TRUE(same_bits(leaves[i].grad(), mean.chunk(kRanks)[rank])) << "group " << i << " on rank " << rank;
    }
  });
}

TEST(ShardedParameters, AreTheSameWithEverythingDropped) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    memory::start_accounting();
    const Group group = join("model");
    const Outcome plain = train(rank, group, nullptr, false);
    Session session;
    expect_same_bits(plain, train(rank, group, &session, false), "nothing dropped");
    expect_same_bits(plain, train(rank, group, &session, true), "everything dropped");
  });
}

TEST(ShardedParameters, AreTheSameInSessionsThatAgree) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    memory::start_accounting();
    const Group group = join("model");
    const Outcome plain = train(rank, group, nullptr, false);
    Session session({.ranks = ranks_of(join("agreement"))});
    expect_same_bits(plain, train(rank, group, &session, true), "everything dropped");
  });
}

TEST(ShardedParameters, GradientsOfSeveralPassesAddUp) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    const Model model;
    Shards shards(model, join("model"));
    loss_of(model, shards, input(rank, 0)).backward();
    const at::Tensor once = shards.leaves()[1].grad().clone();
    loss_of(model, shards, input(rank, 0)).backward();
    EXPECT_TRUE(same_bits(shards.leaves()[1].grad(), once + once));
  });
}

TEST(ShardedParameters, CanBeMadeWholeAndFreed) {
  on_ranks(kRanks, [](int /*rank*/, const auto& join) {
    const Model model, same;
    Shards shards(model, join("model"));
    shards.blocks[0].gather();
    EXPECT_TRUE(same_bits(model.blocks[0].w.detach(), same.blocks[0].w.detach()));
    shards.blocks[0].free();
    EXPECT_EQ(model.blocks[0].w.storage().nbytes(), 0);
    const torch::NoGradGuard no_grad;
    const at::Tensor x = at::ones({2, kWidth});
    const at::Tensor y = shards.blocks[0].call([&](const at::Tensor& z) { return model.blocks[0].forward(z); }, x);
    EXPECT_TRUE(same_bits(y, same.blocks[0].forward(x)));
  });
}

TEST(ShardedParameters, APassThatFailedLeavesNothing) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    const Model model;
    Shards shards(model, join("model"));
    const auto failing = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); };
    EXPECT_THROW(shards.blocks[0].call(failing, at::ones({1})), std::runtime_error);
    EXPECT_EQ(model.blocks[0].w.storage().nbytes(), 0);
    at::Tensor loss = loss_of(model, shards, input(rank, 0));
    loss.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); });
    EXPECT_THROW(loss.backward(), std::runtime_error);
    shards.rest.free();
    for (ShardedParameters& block : shards.blocks) block.free();
    EXPECT_FALSE(shards.leaves()[1].grad().defined());
    loss_of(model, shards, input(rank, 0)).backward();
    EXPECT_TRUE(shards.leaves()[1].grad().defined());
  });
}

TEST(ShardedParameters, RefuseWhatTheyCannotHold) {
  on_ranks(1, [](int /*rank*/, const auto& join) {
    const Group group = join("model");
    const auto message_of = [&](std::vector<at::Tensor> parameters) -> std::string {
      try {
        const ShardedParameters shards(std::move(parameters), group);
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing";
    };
    const auto leaf = [] { return at::ones({4, 4}).requires_grad_(); };
    const at::Tensor one = leaf();
    EXPECT_NE(message_of({}).find("there are no parameters"), std::string::npos);
    EXPECT_NE(message_of({at::ones({2})}).find("parameter 0 needs no gradient"), std::string::npos);
    EXPECT_NE(message_of({leaf(), at::ones({2}, at::kDouble).requires_grad_()}).find("parameter 1 is of another type"),
              std::string::npos);
    EXPECT_NE(message_of({one, one}).find("has the storage of parameter 0"), std::string::npos);
    EXPECT_NE(message_of({at::ones({4, 4}).t().requires_grad_()}).find("not contiguous"), std::string::npos);
    EXPECT_NE(message_of({at::ones({4})[0].requires_grad_()}).find("all of its storage"), std::string::npos);
    EXPECT_NE(message_of({leaf(), at::Tensor()}).find("parameter 1 is undefined"), std::string::npos);
  });
}

TEST(RanksOf, GivesWhatEachRankHasGiven) {
  on_ranks(3, [](int rank, const auto& join) {
    const Ranks ranks = ranks_of(join("agreement"));
    EXPECT_EQ(ranks.rank, rank);
    const std::vector<std::vector<int64_t>> expected = {{0, -1}, {10, -1}, {20, -1}};
    EXPECT_EQ(ranks.gather({10 * rank, -1}), expected);
    EXPECT_EQ(ranks.gather({10 * rank, -1}), expected);
  });
}

}  // namespace
}  // namespace remat::test
