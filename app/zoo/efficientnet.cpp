#include "zoo/efficientnet.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat::zoo {
namespace {

constexpr int64_t kStemChannels = 32;
constexpr int64_t kHeadChannels = 1280;
constexpr int64_t kSqueeze = 4;  // channels of a block's input for one that its gate squeezes them into
constexpr double kLargestScale = 16;
constexpr double kUsualMomentum = 0.1;

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

int64_t depth_of(const Stage& stage, const EfficientNetConfig& config) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(stage.blocks) * config.depth));
}

int64_t scaled(int64_t channels, const EfficientNetConfig& config) {
  return round_channels(static_cast<double>(channels) * config.width);
}

struct BlockShape {
  int64_t number, in, out, expansion, kernel, stride;
  bool residual;  ///< all blocks of a stage but its first

  int64_t wide() const { return in * expansion; }
  int64_t squeezed() const { return std::max<int64_t>(1, in / kSqueeze); }
};

void for_each_block(const EfficientNetConfig& config, const std::function<void(const BlockShape&)>& what) {
  int64_t number = 0, channels = scaled(kStemChannels, config);
  for (const Stage& stage : kStages) {
    const int64_t out = scaled(stage.channels, config), depth = depth_of(stage, config);
    for (int64_t i = 0; i < depth; ++i, ++number, channels = out) {
      what({.number = number,
            .in = channels,
            .out = out,
            .expansion = stage.expansion,
            .kernel = stage.kernel,
            .stride = i == 0 ? stage.stride : 1,
            .residual = i > 0});
    }
  }
}

struct NormOptions {
  double epsilon, momentum;
};

struct ConvolutionOptions {
  int64_t stride = 1, groups = 1;
  bool square_padding = true;
};

/// Convolution without bias, then BatchNorm.
class Convolution : public torch::nn::Module {
 public:
  Convolution(int64_t in, int64_t out, int64_t kernel, const NormOptions& norm, const ConvolutionOptions& options = {})
      : padding_(kernel / 2),
        square_(options.square_padding),
        conv_(torch::nn::Conv2dOptions(in, out, kernel)
                  .stride(options.stride)
                  .padding(options.square_padding ? kernel / 2 : 0)
                  .groups(options.groups)
                  .bias(false)),
        norm_(torch::nn::BatchNorm2dOptions(out).eps(norm.epsilon).momentum(norm.momentum)) {
    register_module("conv", conv_);
    register_module("norm", norm_);
  }

  at::Tensor forward(const at::Tensor& x) { return norm_(conv_(square_ ? x : padded(x))); }

 private:
  at::Tensor padded(const at::Tensor& x) const {
    return at::constant_pad_nd(x, {padding_ - 1, padding_, padding_ - 1, padding_});
  }

  int64_t padding_;
  bool square_;
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
  InvertedBottleneck(const BlockShape& shape, double skipped, const EfficientNetConfig& config)
      : skipped_(skipped), drop_elements_(config.drop_elements), residual_(shape.residual) {
    const int64_t wide = shape.wide();
    const NormOptions norm{.epsilon = config.norm_epsilon, .momentum = config.norm_momentum};
    const bool square = shape.stride == 1 || std::ranges::count(config.square_padding, shape.number) > 0;
    if (wide != shape.in) {
      const NormOptions usual{.epsilon = config.norm_epsilon, .momentum = kUsualMomentum};
      expand_ = register_module("expand", std::make_shared<Convolution>(shape.in, wide, 1, usual));
    }
    const ConvolutionOptions by_channel{.stride = shape.stride, .groups = wide, .square_padding = square};
    depthwise_ =
        register_module("depthwise", std::make_shared<Convolution>(wide, wide, shape.kernel, norm, by_channel));
    gate_ = register_module("gate", std::make_shared<ChannelGate>(wide, shape.squeezed()));
    project_ = register_module("project", std::make_shared<Convolution>(wide, shape.out, 1, norm));
  }

  at::Tensor forward(const at::Tensor& x) {
    auto h = expand_ ? at::silu(expand_->forward(x)) : x;
    h = at::silu(depthwise_->forward(h));
    h = project_->forward(gate_->forward(h));
    return residual_ ? x + drop(h) : h;
  }

 private:
  at::Tensor drop(const at::Tensor& h) const {
    if (!is_training() || skipped_ == 0) return h;
    if (drop_elements_) return at::dropout(h, skipped_, /*train=*/true);
    const auto ones = at::ones({h.size(0), 1, 1, 1}, h.options());
    return h * at::dropout(ones, skipped_, /*train=*/true);
  }

  double skipped_;
  bool drop_elements_, residual_;
  std::shared_ptr<Convolution> expand_, depthwise_, project_;
  std::shared_ptr<ChannelGate> gate_;
};

class EfficientNet : public Model {
 public:
  explicit EfficientNet(const EfficientNetConfig& config) : dropout_(config.dropout), classify_(nullptr) {
    const NormOptions norm{.epsilon = config.norm_epsilon, .momentum = config.norm_momentum};
    const ConvolutionOptions halving{.stride = 2, .square_padding = false};
    stem_ = register_module(
        "stem", std::make_shared<Convolution>(3, scaled(kStemChannels, config), /*kernel=*/3, norm, halving));
    int64_t channels = 0;
    const auto all = static_cast<double>(block_count(config));
    for_each_block(config, [&](const BlockShape& shape) {
      const double skipped = config.stochastic_depth * static_cast<double>(shape.number) / all;
      auto block = std::make_shared<InvertedBottleneck>(shape, skipped, config);
      register_module("block" + std::to_string(shape.number), block);
      add_block([block](const at::Tensor& x) { return block->forward(x); });
      channels = shape.out;
    });
    head_ = register_module("head", std::make_shared<Convolution>(channels, head_channels(config), 1, norm));
    classify_ = register_module("classify", torch::nn::Linear(head_channels(config), config.classes));
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

void check(const EfficientNetConfig& config) {
  if (!is_scale(config.width) || !is_scale(config.depth)) {
    throw Error("[efficientnet] width is " + support::short_text(config.width) + " and depth " +
                support::short_text(config.depth) + "; give numbers above 0, at most 16");
  }
  if (!is_probability(config.dropout) || !is_probability(config.stochastic_depth)) {
    throw Error("[efficientnet] dropout is " + support::short_text(config.dropout) + " and stochastic_depth " +
                support::short_text(config.stochastic_depth) + "; give numbers from 0 up to, not including, 1");
  }
  if (config.classes < 1) throw Error("[efficientnet] classes must be 1 or more; give a larger number");
  if (!(config.norm_epsilon > 0) || !(config.norm_momentum >= 0 && config.norm_momentum <= 1)) {
    throw Error("[efficientnet] norm_epsilon is " + support::short_text(config.norm_epsilon) + " and norm_momentum " +
                support::short_text(config.norm_momentum) + "; give a number above 0, and one from 0 to 1");
  }
}

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

int64_t block_count(const EfficientNetConfig& config) {
  check(config);
  int64_t blocks = 0;
  for (const Stage& stage : kStages) blocks += depth_of(stage, config);
  return blocks;
}

int64_t head_channels(const EfficientNetConfig& config) {
  check(config);
  return scaled(kHeadChannels, config);
}

int64_t parameter_count(const EfficientNetConfig& config) {
  check(config);
  const auto convolution = [](int64_t in, int64_t out, int64_t area) { return in * out * area + 2 * out; };
  int64_t count = convolution(3, scaled(kStemChannels, config), 9), channels = 0;
  for_each_block(config, [&](const BlockShape& shape) {
    const int64_t wide = shape.wide(), squeezed = shape.squeezed();
    if (wide != shape.in) count += convolution(shape.in, wide, 1);
    count += convolution(1, wide, shape.kernel * shape.kernel) + 2 * wide * squeezed + squeezed + wide +
             convolution(wide, shape.out, 1);
    channels = shape.out;
  });
  const int64_t head = head_channels(config);
  return count + convolution(channels, head, 1) + head * config.classes + config.classes;
}

std::shared_ptr<Model> make_efficientnet(const EfficientNetConfig& config) {
  check(config);
  return std::make_shared<EfficientNet>(config);
}

}  // namespace remat::zoo
