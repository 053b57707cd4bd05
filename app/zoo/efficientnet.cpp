#include "zoo/efficientnet.h"

#include <algorithm>
#include <cmath>

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat::zoo {
namespace {

constexpr int64_t kStemChannels = 32;
constexpr int64_t kHeadExpansion = 4;
constexpr double kLargestScale = 16;

struct Stage {
  int64_t expansion, kernel, stride, channels, blocks;
};

constexpr Stage kStages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                             {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

/// To the nearest multiple of 8, or the next one where that would take away more than a tenth.
int64_t round_channels(double channels) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

/// Convolution without bias, then BatchNorm.
class Convolution : public torch::nn::Module {
 public:
  Convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1)
      : conv_(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false)),
        norm_(out) {
    register_module("conv", conv_);
    register_module("norm", norm_);
  }

  at::Tensor forward(const at::Tensor& x) { return norm_(conv_(x)); }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
};

/// Squeeze-and-excitation: scales each channel by a number between 0 and 1 that follows from the means of all.
class ChannelGate : public torch::nn::Module {
 public:
  ChannelGate(int64_t channels, int64_t squeezed)
      : squeeze_(torch::nn::Conv2dOptions(channels, squeezed, /*kernel_size=*/1)),
        excite_(torch::nn::Conv2dOptions(squeezed, channels, /*kernel_size=*/1)) {
    register_module("squeeze", squeeze_);
    register_module("excite", excite_);
  }

  at::Tensor forward(const at::Tensor& x) {
    return x * at::sigmoid(excite_(at::silu(squeeze_(x.mean({2, 3}, /*keepdim=*/true)))));
  }

 private:
  torch::nn::Conv2d squeeze_, excite_;
};

/// MBConv: widened, convolved channel by channel, gated, narrowed.
class InvertedBottleneck : public torch::nn::Module {
 public:
  InvertedBottleneck(int64_t in, int64_t out, const Stage& stage, int64_t stride, double skipped)
      : skipped_(skipped), residual_(stride == 1 && in == out) {
    const int64_t wide = in * stage.expansion;
    if (wide != in) expand_ = register_module("expand", std::make_shared<Convolution>(in, wide, 1));
    depthwise_ =
        register_module("depthwise", std::make_shared<Convolution>(wide, wide, stage.kernel, stride, /*groups=*/wide));
    gate_ = register_module("gate", std::make_shared<ChannelGate>(wide, std::max<int64_t>(1, in / 4)));
    project_ = register_module("project", std::make_shared<Convolution>(wide, out, 1));
  }

  at::Tensor forward(const at::Tensor& x) {
    auto h = expand_ ? at::silu(expand_->forward(x)) : x;
    h = at::silu(depthwise_->forward(h));
    h = project_->forward(gate_->forward(h));
    return residual_ ? x + skip_samples(h) : h;
  }

 private:
  at::Tensor skip_samples(const at::Tensor& h) const {
    if (!is_training() || skipped_ == 0) return h;
    const auto ones = at::ones({h.size(0), 1, 1, 1}, h.options());
    return h * at::dropout(ones, skipped_, /*train=*/true);
  }

  double skipped_;
  bool residual_;
  std::shared_ptr<Convolution> expand_, depthwise_, project_;
  std::shared_ptr<ChannelGate> gate_;
};

class EfficientNet : public Model {
 public:
  explicit EfficientNet(const EfficientNetConfig& config) : dropout_(config.dropout), classify_(nullptr) {
    int64_t channels = round_channels(kStemChannels * config.width);
    stem_ = register_module("stem", std::make_shared<Convolution>(3, channels, /*kernel=*/3, /*stride=*/2));
    const auto depth = [&](const Stage& stage) {
      return static_cast<int64_t>(std::ceil(static_cast<double>(stage.blocks) * config.depth));
    };
    int64_t all = 0, number = 0;
    for (const Stage& stage : kStages) all += depth(stage);
    for (size_t s = 0; s < std::size(kStages); ++s) {
      const Stage& stage = kStages[s];
      const int64_t out = round_channels(static_cast<double>(stage.channels) * config.width);
      for (int64_t i = 0; i < depth(stage); ++i, ++number, channels = out) {
        const double skipped = config.stochastic_depth * static_cast<double>(number) / static_cast<double>(all);
        auto block = std::make_shared<InvertedBottleneck>(channels, out, stage, i == 0 ? stage.stride : 1, skipped);
        register_module("block" + std::to_string(s) + "_" + std::to_string(i), block);
        add_block([block](const at::Tensor& x) { return block->forward(x); });
      }
    }
    head_ = register_module("head", std::make_shared<Convolution>(channels, kHeadExpansion * channels, 1));
    classify_ = register_module("classify", torch::nn::Linear(kHeadExpansion * channels, config.classes));
    initialize(1 / std::sqrt(static_cast<double>(config.classes)));
  }

  at::Tensor forward(at::Tensor images) override {
    const auto x = run_blocks(at::silu(stem_->forward(images)));
    const auto means = at::silu(head_->forward(x)).mean({2, 3});
    return classify_(at::dropout(means, dropout_, is_training()));
  }

 private:
  /// As in the paper: `range` is that of the classifier's weights.
  void initialize(double range) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      auto& tensor = parameter.value();
      if (tensor.dim() == 4) torch::nn::init::kaiming_normal_(tensor, 0, torch::kFanOut);
      if (tensor.dim() == 2) torch::nn::init::uniform_(tensor, -range, range);
      if (parameter.key().ends_with("bias")) tensor.zero_();
    }
  }

  double dropout_;
  std::shared_ptr<Convolution> stem_, head_;
  torch::nn::Linear classify_;
};

bool is_scale(double number) { return number > 0 && number <= kLargestScale; }

bool is_probability(double number) { return number >= 0 && number < 1; }

}  // namespace

EfficientNetConfig efficientnet_config(int64_t number) {
  constexpr EfficientNetConfig kSizes[] = {{.width = 1.0, .depth = 1.0, .dropout = 0.2},
                                           {.width = 1.0, .depth = 1.1, .dropout = 0.2},
                                           {.width = 1.1, .depth = 1.2, .dropout = 0.3},
                                           {.width = 1.2, .depth = 1.4, .dropout = 0.3},
                                           {.width = 1.4, .depth = 1.8, .dropout = 0.4}};
  if (number < 0 || number >= static_cast<int64_t>(std::size(kSizes))) {
    throw Error("[efficientnet] there is no B" + std::to_string(number) + " here; give 0 to 4");
  }
  return kSizes[number];
}

std::shared_ptr<Model> make_efficientnet(const EfficientNetConfig& config) {
  if (!is_scale(config.width) || !is_scale(config.depth)) {
    throw Error("[efficientnet] width is " + support::short_text(config.width) + " and depth " +
                support::short_text(config.depth) + "; give numbers above 0, at most 16");
  }
  if (!is_probability(config.dropout) || !is_probability(config.stochastic_depth)) {
    throw Error("[efficientnet] dropout is " + support::short_text(config.dropout) + " and stochastic_depth " +
                support::short_text(config.stochastic_depth) + "; give numbers from 0 up to, not including, 1");
  }
  if (config.classes < 1) throw Error("[efficientnet] classes must be 1 or more; give a larger number");
  return std::make_shared<EfficientNet>(config);
}

}  // namespace remat::zoo
