#include "zoo/unet.h"

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

constexpr int64_t kMostLevels = 16;

/// Two times convolution, normalization and ReLU.
class DoubleConvolution : public torch::nn::Module {
 public:
  DoubleConvolution(int64_t in, int64_t out, int64_t groups)
      : conv1_(options(in, out)),
        conv2_(options(out, out)),
        norm1_(torch::nn::GroupNormOptions(groups, out)),
        norm2_(torch::nn::GroupNormOptions(groups, out)) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
  }

  at::Tensor forward(at::Tensor x) {
    x = norm1_(conv1_(x)).relu_();  // the large input is held no longer than it is needed
    return norm2_(conv2_(x)).relu_();
  }

 private:
  static torch::nn::Conv2dOptions options(int64_t in, int64_t out) {
    return torch::nn::Conv2dOptions(in, out, /*kernel_size=*/3).padding(1).bias(false);
  }

  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::GroupNorm norm1_, norm2_;
};

class UNet : public Model {
 public:
  explicit UNet(const UNetConfig& config) : classify_(nullptr) {
    int64_t channels = 3, width = config.width;
    for (int64_t level = 0; level < config.levels; ++level, width *= 2) {
      encoders_.push_back(add("encoder" + std::to_string(level), channels, width, config.groups));
      channels = width;
    }
    bottom_ = add("bottom", channels, width, config.groups);
    for (int64_t level = config.levels - 1; level >= 0; --level) {
      const torch::nn::ConvTranspose2d up(
          torch::nn::ConvTranspose2dOptions(width, width / 2, /*kernel_size=*/2).stride(2));
      width /= 2;
      ups_.emplace_back(register_module("up" + std::to_string(level), up));
      decoders_.push_back(add("decoder" + std::to_string(level), 2 * width, width, config.groups));
    }
    const torch::nn::Conv2d classify(torch::nn::Conv2dOptions(width, config.classes, /*kernel_size=*/1));
    classify_ = register_module("classify", classify);
  }

  at::Tensor forward(at::Tensor x) override {
    std::vector<at::Tensor> skips;
    for (const auto& encoder : encoders_) {
      skips.push_back(run(encoder, std::move(x)));
      x = at::max_pool2d(skips.back(), /*kernel_size=*/2);
    }
    x = run(bottom_, std::move(x));
    for (size_t i = 0; i < decoders_.size(); ++i) {
      x = at::cat({skips.back(), ups_[i](x)}, /*dim=*/1);
      skips.pop_back();
      x = run(decoders_[i], std::move(x));
    }
    return classify_(x);
  }

 private:
  using Unit = std::shared_ptr<DoubleConvolution>;

  Unit add(const std::string& name, int64_t in, int64_t out, int64_t groups) {
    return register_module(name, std::make_shared<DoubleConvolution>(in, out, groups));
  }

  at::Tensor run(const Unit& unit, at::Tensor x) const {
    return run_block([unit](at::Tensor h) { return unit->forward(std::move(h)); }, std::move(x));
  }

  std::vector<Unit> encoders_, decoders_;
  Unit bottom_;
  std::vector<torch::nn::ConvTranspose2d> ups_;
  torch::nn::Conv2d classify_;
};

}  // namespace

std::shared_ptr<Model> make_unet(const UNetConfig& config) {
  if (config.levels < 1 || config.width < 1 || config.groups < 1 || config.classes < 1) {
    throw Error("[unet] levels, width, groups and classes must each be 1 or more; give a larger one");
  }
  if (config.levels > kMostLevels) {
    throw Error("[unet] levels is " + std::to_string(config.levels) + "; give " + std::to_string(kMostLevels) +
                " or fewer");
  }
  if (config.width % config.groups != 0) {
    throw Error("[unet] width " + std::to_string(config.width) + " is not a multiple of groups " +
                std::to_string(config.groups) + "; change one of them");
  }
  return std::make_shared<UNet>(config);
}

}  // namespace remat::zoo
