// An agent that is saved and loaded plays on as the one that was saved.
#include <torch/torch.h>

#include "support/comma_locale.h"
#include "support/compare.h"
#include "zoo/dqn_agent.h"

namespace remat::test {
namespace {

/// What the agent's next updates learn from, and the bits of its generator of draws and of its weights.
Outcome next_experience(zoo::DqnAgent& agent, int updates) {
  Outcome outcome;
  for (int i = 0; i < updates; ++i) {
    const zoo::Transitions batch = agent.experience();
    outcome.add("observation", batch.observation);
    outcome.add("action", batch.action);
    outcome.add("reward", batch.reward);
    outcome.add("next", batch.next);
    outcome.add("terminated", batch.terminated);
    const torch::NoGradGuard no_grad;  // as an update would: the next actions are others
    for (at::Tensor& parameter : agent.online().parameters()) parameter.mul_(1.01);
    outcome.add("loss", agent.loss(batch));
  }
  return outcome;
}

zoo::DqnAgent agent_of(const std::string& game) {
  torch::manual_seed(3);
  return zoo::make_agent(game, /*seed=*/5, /*batch=*/16);
}

TEST(DqnAgent, PlaysOnAsTheOneThatWasSaved) {
  for (const std::string game : {"cart-pole", "catch"}) {
    zoo::DqnAgent saved = agent_of(game);
    next_experience(saved, 60);  // the target network was copied at the 50th
    torch::serialize::OutputArchive written;
    saved.save(written);
    std::stringstream bytes;
    written.save_to(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
    torch::manual_seed(4);
    zoo::DqnAgent other = zoo::make_agent(game, /*seed=*/5, /*batch=*/16);
    other.load(archive);
    EXPECT_EQ(other.returns(), saved.returns()) << game;
    expect_same_bits(next_experience(saved, 60), next_experience(other, 60), game);
    EXPECT_EQ(other.returns(), saved.returns()) << game;
  }
}

TEST(DqnAgent, IsSavedTheSameUnderALocaleThatGroupsDigits) {
  zoo::DqnAgent saved = agent_of("cart-pole");
  next_experience(saved, 20);
  torch::serialize::OutputArchive written;
  {
    const CommaLocale locale;
    saved.save(written);
  }
  std::stringstream bytes;
  written.save_to(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  zoo::DqnAgent other = agent_of("cart-pole");
  other.load(archive);
  expect_same_bits(next_experience(saved, 20), next_experience(other, 20), "after");
}

TEST(DqnAgent, GoesOnWithItsEpisodeAfterItWasJudged) {
  zoo::DqnAgent agent = agent_of("cart-pole"), judged = agent_of("cart-pole");
  expect_same_bits(next_experience(agent, 3), next_experience(judged, 3), "before");
  const double mean = judged.mean_return(4);
  EXPECT_EQ(judged.mean_return(4), mean);
  expect_same_bits(next_experience(agent, 20), next_experience(judged, 20), "after");
}

}  // namespace
}  // namespace remat::test
