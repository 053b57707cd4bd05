// zoo/dqn.h -- deep Q-learning (Mnih et al. 2015): networks that tell what each action is worth, and their loss.
#pragma once

#include <memory>
#include <vector>

#include "zoo/model.h"
#include "zoo/replay_buffer.h"

namespace remat::zoo {

struct Filters {
  int64_t channels, kernel, stride;
};

/// The default is the network of the paper, for the 18 actions of an Atari console.
struct DqnConfig {
  int64_t frames = 4;  ///< channels of an observation
  int64_t height = 84;
  int64_t width = 84;
  std::vector<Filters> convolutions = {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}};  ///< without padding, each with a ReLU
  int64_t hidden = 512;                                                      ///< of the linear layer behind them
  int64_t actions = 18;
};

/// forward: (batch, frames, height, width) pixels from 0 to 255 -> (batch, actions) values. Throws remat::Error for a
/// config that cannot be.
std::shared_ptr<Model> make_dqn(const DqnConfig& config);

struct VectorDqnConfig {
  int64_t inputs = 4;  ///< numbers in an observation
  std::vector<int64_t> hidden = {128, 128};
  int64_t actions = 2;
};

/// The same for observations that are a few numbers; a multilayer perceptron with ReLU.
/// forward: (batch, inputs) -> (batch, actions) values. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_vector_dqn(const VectorDqnConfig& config);

/// Mean Huber loss between what `online` says of the actions that were taken, and reward + discount * the most that
/// `target` says of any action next, without which an episode ends. Only `online` gets gradients.
at::Tensor q_learning_loss(Model& online, Model& target, const Transitions& batch, double discount);

/// The action that is worth most, of one observation without a batch dimension.
int64_t best_action(Model& model, const at::Tensor& observation);

/// Makes the parameters of `to` equal to those of `from`, a model of the same config.
void copy_weights(const Model& from, Model& to);

}  // namespace remat::zoo
