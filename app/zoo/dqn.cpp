#include "zoo/dqn.h"

#include <algorithm>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

class Dqn : public Model {
 public:
  /// `features`: numbers that the convolutions leave of an observation.
  Dqn(const DqnConfig& config, int64_t features)
      : hidden_(features, config.hidden), output_(config.hidden, config.actions) {
    int64_t channels = config.frames;
    for (const Filters& filters : config.convolutions) {
      const torch::nn::Conv2d layer(
          torch::nn::Conv2dOptions(channels, filters.channels, filters.kernel).stride(filters.stride));
      convolutions_.push_back(register_module("conv" + std::to_string(convolutions_.size()), layer));
      channels = filters.channels;
    }
    register_module("hidden", hidden_);
    register_module("output", output_);
  }

  at::Tensor forward(at::Tensor pixels) override {
    auto x = pixels.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).div_(255);
    for (auto& layer : convolutions_) x = layer(x).relu_();
    return output_(hidden_(x.flatten(1)).relu_());
  }

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  torch::nn::Linear hidden_, output_;
};

class VectorDqn : public Model {
 public:
  explicit VectorDqn(const VectorDqnConfig& config) : output_(nullptr) {
    int64_t width = config.inputs;
    for (const int64_t hidden : config.hidden) {
      const auto name = "hidden" + std::to_string(hidden_.size());
      hidden_.push_back(register_module(name, torch::nn::Linear(width, hidden)));
      width = hidden;
    }
    output_ = register_module("output", torch::nn::Linear(width, config.actions));
  }

  at::Tensor forward(at::Tensor x) override {
    for (auto& layer : hidden_) x = layer(x).relu_();
    return output_(x);
  }

 private:
  std::vector<torch::nn::Linear> hidden_;
  torch::nn::Linear output_;
};

/// Numbers that the convolutions leave of an observation.
int64_t count_features(const DqnConfig& config) {
  int64_t channels = config.frames, height = config.height, width = config.width;
  for (const Filters& filters : config.convolutions) {
    if (filters.channels < 1 || filters.kernel < 1 || filters.stride < 1) {
      throw Error("[dqn] channels, kernel and stride of convolutions must each be 1 or more; give a larger one");
    }
    if (filters.kernel > std::min(height, width)) {
      throw Error("[dqn] a kernel of " + std::to_string(filters.kernel) + " does not fit into the " +
                  std::to_string(height) + " x " + std::to_string(width) +
                  " pixels before it; give larger images, or smaller kernels or strides");
    }
    channels = filters.channels;
    height = (height - filters.kernel) / filters.stride + 1;
    width = (width - filters.kernel) / filters.stride + 1;
  }
  return channels * height * width;
}

}  // namespace

std::shared_ptr<Model> make_dqn(const DqnConfig& config) {
  for (const int64_t size : {config.frames, config.height, config.width, config.hidden, config.actions}) {
    if (size < 1)
      throw Error("[dqn] frames, height, width, hidden and actions must each be 1 or more; give a larger one");
  }
  return std::make_shared<Dqn>(config, count_features(config));
}

std::shared_ptr<Model> make_vector_dqn(const VectorDqnConfig& config) {
  const bool layers = std::ranges::all_of(config.hidden, [](int64_t n) { return n > 0; });
  if (!layers || config.inputs < 1 || config.actions < 1) {
    throw Error("[dqn] inputs, hidden and actions must each be 1 or more; give a larger one");
  }
  return std::make_shared<VectorDqn>(config);
}

at::Tensor q_learning_loss(Model& online, Model& target, const Transitions& batch, double discount) {
  at::Tensor wanted;
  {
    const torch::NoGradGuard no_grad;
    const auto most = target.forward(batch.next).amax(/*dim=*/1);
    wanted = batch.reward + discount * most * (1 - batch.terminated);
  }
  const auto values = online.forward(batch.observation).gather(1, batch.action.unsqueeze(1)).squeeze(1);
  return at::huber_loss(values, wanted);
}

int64_t best_action(Model& model, const at::Tensor& observation) {
  const torch::NoGradGuard no_grad;
  return model.forward(observation.unsqueeze(0)).argmax().item<int64_t>();
}

void copy_weights(const Model& from, Model& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from.parameters(), destination = to.parameters();
  for (size_t i = 0; i < source.size(); ++i) destination[i].copy_(source[i]);
}

}  // namespace remat::zoo
