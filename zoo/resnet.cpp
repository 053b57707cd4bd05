#include "zoo/resnet.h"

#include <algorithm>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  return layer;
}

class Bottleneck : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in, int64_t width, int64_t stride)
      : conv1_(convolution(in, width, 1, 1)),
        conv2_(convolution(width, width, 3, stride)),
        conv3_(convolution(width, kExpansion * width, 1, 1)),
        norm1_(width),
        norm2_(width),
        norm3_(kExpansion * width) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
    register_module("conv3", conv3_);
    register_module("norm3", norm3_);
    if (stride != 1 || in != kExpansion * width) {
      shortcut_->push_back(convolution(in, kExpansion * width, 1, stride));
      shortcut_->push_back(torch::nn::BatchNorm2d(kExpansion * width));
    }
    register_module("shortcut", shortcut_);
  }

  at::Tensor forward(const at::Tensor& x) {
    auto h = norm1_(conv1_(x)).relu_();
    h = norm2_(conv2_(h)).relu_();
    h = norm3_(conv3_(h));
    return (h + (shortcut_->is_empty() ? x : shortcut_->forward(x))).relu_();
  }

 private:
  torch::nn::Conv2d conv1_, conv2_, conv3_;
  torch::nn::BatchNorm2d norm1_, norm2_, norm3_;
  torch::nn::Sequential shortcut_;  // empty: the identity
};

class ResNet : public Model {
 public:
  explicit ResNet(const ResNetConfig& config)
      : stem_(convolution(3, config.width, 7, 2)), stem_norm_(config.width), classify_(nullptr) {
    register_module("stem", stem_);
    register_module("stem_norm", stem_norm_);
    int64_t channels = config.width, width = config.width;
    for (size_t stage = 0; stage < config.depths.size(); ++stage, width *= 2) {
      for (int64_t i = 0; i < config.depths[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        auto block = std::make_shared<Bottleneck>(channels, width, stride);
        register_module("block" + std::to_string(stage) + "_" + std::to_string(i), block);
        add_block([block](const at::Tensor& x) { return block->forward(x); });
        channels = Bottleneck::kExpansion * width;
      }
    }
    classify_ = register_module("classify", torch::nn::Linear(channels, config.classes));
  }

  at::Tensor forward(at::Tensor images) override {
    auto x = stem_norm_(stem_(images)).relu_();
    x = run_blocks(at::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1));
    return classify_(x.mean({2, 3}));
  }

 private:
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d stem_norm_;
  torch::nn::Linear classify_;
};

}  // namespace

std::shared_ptr<Model> make_resnet(const ResNetConfig& config) {
  const bool stages = !config.depths.empty() && std::ranges::all_of(config.depths, [](int64_t n) { return n > 0; });
  if (!stages || config.width < 1 || config.classes < 1) {
    throw Error("[resnet] depths, width and classes must each be 1 or more; give a larger one");
  }
  return std::make_shared<ResNet>(config);
}

}  // namespace remat::zoo
