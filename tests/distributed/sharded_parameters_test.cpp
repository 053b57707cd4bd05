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

/// Shards after three steps of two passes each, whose gradients AdamW takes: after backward, or while it runs.
Outcome train_by_adam(int rank, const Group& group, bool in_backward, Session* session) {
  const Model model;
  Shards shards(model, group);
  torch::optim::AdamW optimizer(shards.leaves(), torch::optim::AdamWOptions(0.1));
  std::optional<OptimizerInBackward> updates;
  if (in_backward) updates.emplace(optimizer, /*accumulate=*/2);
  Outcome outcome;
  for (int pass = 0; pass < 6; ++pass) {
    std::optional<Step> begun;
    if (session != nullptr) begun.emplace(session->step());
    {
      std::optional<PolicyScope> scope;
      if (session != nullptr) scope.emplace(Policy::drop_all());
      // The input needs no gradient, so that the first block's pass ends with the whole.
      at::Tensor y = input(rank, pass);
      for (size_t i = 0; i < model.blocks.size(); ++i) {
        y = shards.blocks[i].call([&](const at::Tensor& z) { return model.blocks[i].forward(z); }, y);
      }
      y = shards.rest.call([&](const at::Tensor& z) { return model.begin(z).square().mean(); }, y);
      y.backward();
    }
    if (begun) begun->end();
    if (pass % 2 == 0) continue;
    for (const at::Tensor& leaf : shards.leaves()) EXPECT_EQ(leaf.grad().defined(), !in_backward);
    optimizer.step();
    optimizer.zero_grad();
    for (const at::Tensor& leaf : shards.leaves()) outcome.add("shard", leaf.detach().clone());
  }
  return outcome;
}

TEST(ShardedParameters, AreUpdatedWhileBackwardRuns) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    memory::start_accounting();
    const Group group = join("model");
    const Outcome after = train_by_adam(rank, group, /*in_backward=*/false, nullptr);
    expect_same_bits(after, train_by_adam(rank, group, /*in_backward=*/true, nullptr), "plain");
    Session session;
    expect_same_bits(after, train_by_adam(rank, group, /*in_backward=*/true, &session), "everything dropped");
  });
}

TEST(ShardedParameters, MayBeFrozen) {
  // The weights of the blocks are frozen, and the biases beside them are trained.
  const auto train_biases = [](int rank, const Group& group, Session* session) {
    const Model model;
    std::vector<ShardedParameters> weights, biases;
    for (const Block& block : model.blocks) {
      weights.emplace_back(std::vector<at::Tensor>{block.w.requires_grad_(false)}, group);
      biases.emplace_back(std::vector<at::Tensor>{block.b}, group);
    }
    EXPECT_FALSE(weights[0].shard().requires_grad());
    std::optional<Step> begun;
    if (session != nullptr) begun.emplace(session->step());
    Outcome outcome;
    {
      std::optional<PolicyScope> scope;
      if (session != nullptr) scope.emplace(Policy::drop_all());
      at::Tensor y = input(rank, 0);
      for (size_t i = 0; i < model.blocks.size(); ++i) {
        const auto forward = [&](const at::Tensor& x) { return model.blocks[i].forward(x); };
        y = weights[i].call([&](at::Tensor x) { return biases[i].call(forward, std::move(x)); }, y);
        EXPECT_EQ(model.blocks[i].w.storage().nbytes(), 0) << "freed after its forward pass";
      }
      y.square().mean().backward();
    }
    if (begun) {
      EXPECT_GT(begun->end().values_dropped, 0);
    }
    for (size_t i = 0; i < model.blocks.size(); ++i) {
      EXPECT_EQ(model.blocks[i].w.storage().nbytes(), 0) << "freed after its backward pass";
      EXPECT_FALSE(weights[i].shard().grad().defined());
      outcome.add("gradient", biases[i].shard().grad().clone());
    }
    return outcome;
  };
  std::vector<at::Tensor> means;
  for (int64_t i = 0; i < kBlocks; ++i) means.push_back(at::zeros({kWidth}));
  for (int rank = 0; rank < kRanks; ++rank) {
    const Model model;
    at::Tensor y = input(rank, 0);
    for (const Block& block : model.blocks) y = block.forward(y);
    y.square().mean().backward();
    for (size_t i = 0; i < means.size(); ++i) means[i] += model.blocks[i].b.grad() / kRanks;
  }
  on_ranks(kRanks, [&](int rank, const auto& join) {
    memory::start_accounting();
    const Group group = join("model");
    Outcome expected;
    for (const at::Tensor& mean : means) expected.add("gradient", mean.chunk(kRanks)[rank]);
    expect_same_bits(expected, train_biases(rank, group, nullptr), "plain");
    Session session;
    expect_same_bits(expected, train_biases(rank, group, &session), "everything dropped");
  });
}

TEST(ShardedParameters, AreNotTrainedWhereTheyWereFrozen) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    const at::Tensor weight = weights({kWidth, kWidth}, 0).requires_grad_(false);
    ShardedParameters shards({weight}, join("model"));
    weight.requires_grad_(true);
    const auto forward = [&](const at::Tensor& x) { return x.mm(weight).sum(); };
    EXPECT_THROW(shards.call(forward, input(rank, 0)), Error);
    EXPECT_EQ(weight.storage().nbytes(), 0);
    weight.requires_grad_(false);
    EXPECT_NO_THROW(shards.call(forward, input(rank, 0)));
  });
}

TEST(ShardedParameters, OfALayerThatIsCalledTwiceAreUpdatedOnce) {
  const auto train_shared = [](int rank, const Group& group, bool in_backward) {
    const at::Tensor weight = weights({kWidth, kWidth}, 0);
    ShardedParameters shards({weight}, group);
    torch::optim::AdamW optimizer({shards.shard()}, torch::optim::AdamWOptions(0.1));
    std::optional<OptimizerInBackward> updates;
    if (in_backward) updates.emplace(optimizer);
    const auto forward = [&](const at::Tensor& x) { return x.mm(weight).sin(); };
    Outcome outcome;
    for (int step = 0; step < 3; ++step) {
      shards.call(forward, shards.call(forward, input(rank, step))).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
      outcome.add("shard", shards.shard().detach().clone());
    }
    return outcome;
  };
  on_ranks(kRanks, [&](int rank, const auto& join) {
    const Group group = join("model");
    expect_same_bits(train_shared(rank, group, false), train_shared(rank, group, true), "in backward");
  });
}

TEST(ShardedParameters, WhatIsMisusedIsAnError) {
  on_ranks(kRanks, [](int rank, const auto& join) {
    const at::Tensor weight = weights({kWidth, kWidth}, 0), x = input(rank, 0);
    ShardedParameters first({weight}, join("model"));
    ShardedParameters shards = std::move(first);
    EXPECT_THROW(first.shard(), Error);
    EXPECT_THROW(shards.call([&](const at::Tensor& /*x*/) { return weight.t(); }, x), Error);
    const auto forward = [&](const at::Tensor& y) { return y.mm(weight).sum(); };
    EXPECT_THROW(shards.call([&](const at::Tensor& y) { return shards.call(forward, y); }, x), Error);
    EXPECT_THROW(shards.call(forward, x).backward({}, std::nullopt, /*create_graph=*/true), Error);
    // A whole that no backward pass has freed is gathered anew, with what the optimizer has made of the shards.
    shards.call(forward, x, /*until_backward=*/true);
    torch::NoGradGuard no_grad;
    shards.shard().zero_();
    const at::Tensor y = shards.call(forward, x);
    EXPECT_EQ(y.item<float>(), 0);
    shards.gather();
    shards.call(forward, x);
    EXPECT_EQ(weight.sum().item<float>(), 0) << "whole until free()";
    shards.free();
    EXPECT_EQ(weight.storage().nbytes(), 0);
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
    EXPECT_THROW(loss_of(model, shards, input(rank, 0)), Error) << "parameters are whole still";
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
    EXPECT_NE(message_of({leaf().mul(2)}).find("parameter 0 is no leaf"), std::string::npos);
    EXPECT_NE(message_of({leaf(), at::ones({2})}).find("parameter 1 is frozen"), std::string::npos);
    EXPECT_NE(message_of({at::ones({2}), leaf()}).find("parameter 1 is trained"), std::string::npos);
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
