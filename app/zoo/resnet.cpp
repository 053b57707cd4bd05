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

/// Every stride-th pixel, and zeros for the channels that are added: a shortcut without parameters.
class PaddedIdentity : public torch::nn::Module {
 public:
  PaddedIdentity(int64_t in, int64_t out, int64_t stride) : added_(out - in), stride_(stride) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto pixels = x.slice(2, {}, {}, stride_).slice(3, {}, {}, stride_);
    return at::constant_pad_nd(pixels, {0, 0, 0, 0, 0, added_});
  }

 private:
  int64_t added_, stride_;
};

/// Empty where the input can be added as it is.
torch::nn::Sequential make_shortcut(int64_t in, int64_t out, int64_t stride, bool project) {
  torch::nn::Sequential shortcut;
  if (stride == 1 && in == out) return shortcut;
  if (project) {
    shortcut->push_back(convolution(in, out, 1, stride));
    shortcut->push_back(torch::nn::BatchNorm2d(out));
  } else {
    shortcut->push_back(std::make_shared<PaddedIdentity>(in, out, stride));
  }
  return shortcut;
}

class BasicBlock : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(int64_t in, int64_t width, int64_t stride, bool project)
      : conv1_(convolution(in, width, 3, stride)),
        conv2_(convolution(width, width, 3, 1)),
        norm1_(width),
        norm2_(width),
        shortcut_(make_shortcut(in, width, stride, project)) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
    register_module("shortcut", shortcut_);
  }

  at::Tensor forward(const at::Tensor& x) {
    auto h = norm1_(conv1_(x)).relu_();
    h = norm2_(conv2_(h));
    return (h + (shortcut_->is_empty() ? x : shortcut_->forward(x))).relu_();
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::BatchNorm2d norm1_, norm2_;
  torch::nn::Sequential shortcut_;
};

class Bottleneck : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in, int64_t width, int64_t stride, bool project)
      : conv1_(convolution(in, width, 1, 1)),
        conv2_(convolution(width, width, 3, stride)),
        conv3_(convolution(width, kExpansion * width, 1, 1)),
        norm1_(width),
        norm2_(width),
        norm3_(kExpansion * width),
        shortcut_(make_shortcut(in, kExpansion * width, stride, project)) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
    register_module("conv3", conv3_);
    register_module("norm3", norm3_);
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
  torch::nn::Sequential shortcut_;
};

class ResNet : public Model {
 public:
  explicit ResNet(const ResNetConfig& config)
      : pools_(!config.small_images),
        stem_(config.small_images ? convolution(3, config.width, 3, 1) : convolution(3, config.width, 7, 2)),
        stem_norm_(config.width),
        classify_(nullptr) {
    register_module("stem", stem_);
    register_module("stem_norm", stem_norm_);
    int64_t channels = config.width, width = config.width;
    for (size_t stage = 0; stage < config.depths.size(); ++stage, width *= 2) {
      for (int64_t i = 0; i < config.depths[stage]; ++i) {
        const std::string name = "block" + std::to_string(stage) + "_" + std::to_string(i);
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        channels = config.bottleneck ? add<Bottleneck>(name, channels, width, stride, !config.small_images)
                                     : add<BasicBlock>(name, channels, width, stride, !config.small_images);
      }
    }
    classify_ = register_module("classify", torch::nn::Linear(channels, config.classes));
  }

  at::Tensor forward(at::Tensor images) override {
    auto x = stem_norm_(stem_(images)).relu_();
    if (pools_) x = at::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    return classify_(run_blocks(std::move(x)).mean({2, 3}));
  }

 private:
  /// Adds a block; returns the channels of its result.
  template <class Unit>
  int64_t add(const std::string& name, int64_t in, int64_t width, int64_t stride, bool project) {
    auto block = register_module(name, std::make_shared<Unit>(in, width, stride, project));
    add_block([block](const at::Tensor& x) { return block->forward(x); }, block->parameters());
    return Unit::kExpansion * width;
  }

  bool pools_;
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d stem_norm_;
  torch::nn::Linear classify_;
};

}  // namespace

ResNetConfig resnet_config(int64_t layers) {
  switch (layers) {
    case 18:
      return {.depths = {2, 2, 2, 2}, .bottleneck = false};
    case 34:
      return {.depths = {3, 4, 6, 3}, .bottleneck = false};
    case 50:
      return {.depths = {3, 4, 6, 3}};
    case 101:
      return {.depths = {3, 4, 23, 3}};
    case 152:
      return {.depths = {3, 8, 36, 3}};
    default:
      throw Error("[resnet] there is no ResNet-" + std::to_string(layers) +
                  " for ImageNet; give 18, 34, 50, 101 or 152");
  }
}

ResNetConfig cifar_resnet_config(int64_t layers, int64_t classes) {
  if (layers < 8 || layers % 6 != 2) {
    throw Error("[resnet] there is no ResNet-" + std::to_string(layers) +
                " for CIFAR; give 6 n + 2 layers, as 20 or 110");
  }
  const int64_t blocks = (layers - 2) / 6;
  return {
      .depths = {blocks, blocks, blocks}, .width = 16, .classes = classes, .bottleneck = false, .small_images = true};
}

std::shared_ptr<Model> make_resnet(const ResNetConfig& config) {
  const bool stages = !config.depths.empty() && std::ranges::all_of(config.depths, [](int64_t n) { return n > 0; });
  if (!stages || config.width < 1 || config.classes < 1) {
    throw Error("[resnet] depths, width and classes must each be 1 or more; give a larger one");
  }
  return std::make_shared<ResNet>(config);
}

}  // namespace remat::zoo
