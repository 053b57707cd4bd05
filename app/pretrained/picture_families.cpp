#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "pretrained/families.h"
#include "zoo/efficientnet.h"
#include "zoo/vit.h"

namespace remat::pretrained {
namespace {

constexpr std::array<Renaming, 13> kVitNames = {{{"class_token", "vit.embeddings.cls_token"},
                                                 {"positions", "vit.embeddings.position_embeddings"},
                                                 {"patches", "vit.embeddings.patch_embeddings.projection"},
                                                 {"norm", "vit.layernorm"},
                                                 {"block*.norm1", "vit.encoder.layer.*.layernorm_before"},
                                                 {"block*.query", "vit.encoder.layer.*.attention.attention.query"},
                                                 {"block*.key", "vit.encoder.layer.*.attention.attention.key"},
                                                 {"block*.value", "vit.encoder.layer.*.attention.attention.value"},
                                                 {"block*.proj", "vit.encoder.layer.*.attention.output.dense"},
                                                 {"block*.norm2", "vit.encoder.layer.*.layernorm_after"},
                                                 {"block*.up", "vit.encoder.layer.*.intermediate.dense"},
                                                 {"block*.down", "vit.encoder.layer.*.output.dense"},
                                                 {"classify", "classifier"}}};

Description describe_vit(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kClassify});
  config.expect("problem_type", {"single_label_classification"});
  config.expect("hidden_act", {"gelu"});
  config.expect("qkv_bias", {true});
  config.expect("num_channels", {3});
  config.expect("layer_norm_eps", {1e-12});
  config.expect("attention_probs_dropout_prob", {0, 0.0});
  const zoo::VitConfig vit = {.image = config.count("image_size", 224),
                              .patch = config.count("patch_size", 16),
                              .layers = config.count("num_hidden_layers", 12),
                              .width = config.count("hidden_size", 768),
                              .heads = config.count("num_attention_heads", 12),
                              .hidden = config.count("intermediate_size", 3072),
                              .classes = options.classes(),
                              .dropout = options.dropout.value_or(config.number("hidden_dropout_prob", 0))};
  return {.make = [vit] { return zoo::make_vit(vit); },
          .parameters = zoo::parameter_count(vit),
          .layers = vit.layers,
          .vocabulary = 0,
          .longest = std::nullopt,
          .image = vit.image};
}

constexpr std::array<const char*, 2> kPictureClassifier = {"classify.weight", "classify.bias"};
std::span<const char* const> picture_head(Task /*task*/) { return kPictureClassifier; }

constexpr std::array<std::string_view, 3> kVitIgnored = {"classifier.", "vit.pooler.", "pooler."};

constexpr std::array<Renaming, 13> kEfficientNetNames = {
    {{"stem.conv", "efficientnet.embeddings.convolution"},
     {"stem.norm", "efficientnet.embeddings.batchnorm"},
     {"block*.expand.conv", "efficientnet.encoder.blocks.*.expansion.expand_conv"},
     {"block*.expand.norm", "efficientnet.encoder.blocks.*.expansion.expand_bn"},
     {"block*.depthwise.conv", "efficientnet.encoder.blocks.*.depthwise_conv.depthwise_conv"},
     {"block*.depthwise.norm", "efficientnet.encoder.blocks.*.depthwise_conv.depthwise_norm"},
     {"block*.gate.squeeze", "efficientnet.encoder.blocks.*.squeeze_excite.reduce"},
     {"block*.gate.excite", "efficientnet.encoder.blocks.*.squeeze_excite.expand"},
     {"block*.project.conv", "efficientnet.encoder.blocks.*.projection.project_conv"},
     {"block*.project.norm", "efficientnet.encoder.blocks.*.projection.project_bn"},
     {"head.conv", "efficientnet.encoder.top_conv"},
     {"head.norm", "efficientnet.encoder.top_bn"},
     {"classify", "classifier"}}};

std::vector<int64_t> block_numbers(const ConfigFile& config, const std::string& name) {
  if (!config.has(name)) return {};
  const auto& listed = config.json().at(name);
  const auto is_number = [](const nlohmann::json& item) { return item.is_number_integer(); };
  if (!listed.is_array() || !std::ranges::all_of(listed, is_number)) {
    config.refuse("has " + listed.dump() + " for \"" + name + "\", which is no list of whole numbers");
  }
  return listed.get<std::vector<int64_t>>();
}

Description describe_efficientnet(const ConfigFile& config, const LoadOptions& options) {
  using nlohmann::json;
  expect_task(config, options, {Task::kClassify});
  config.expect("problem_type", {"single_label_classification"});
  config.expect("hidden_act", {"swish", "silu"});
  config.expect("pooling_type", {"mean"});
  config.expect("num_channels", {3});
  config.expect("depth_divisor", {8});
  config.expect("squeeze_expansion_ratio", {0.25});
  config.expect("kernel_sizes", {json::array({3, 3, 5, 3, 5, 5, 3})});
  config.expect("in_channels", {json::array({32, 16, 24, 40, 80, 112, 192})});
  config.expect("out_channels", {json::array({16, 24, 40, 80, 112, 192, 320})});
  config.expect("strides", {json::array({1, 2, 2, 2, 1, 2, 1})});
  config.expect("num_block_repeats", {json::array({1, 2, 2, 3, 3, 4, 1})});
  config.expect("expand_ratios", {json::array({1, 6, 6, 6, 6, 6, 6})});
  const zoo::EfficientNetConfig net = {
      .width = config.number("width_coefficient", 2.0),
      .depth = config.number("depth_coefficient", 3.1),
      .dropout = options.dropout.value_or(config.number("dropout_rate", 0.5)),
      .stochastic_depth = options.dropout.value_or(config.number("drop_connect_rate", 0.2)),
      .drop_elements = true,
      .norm_epsilon = config.number("batch_norm_eps", 0.001),
      .norm_momentum = config.number("batch_norm_momentum", 0.99),
      .square_padding = block_numbers(config, "depthwise_padding"),
      .classes = options.classes()};
  config.expect("hidden_dim", {zoo::head_channels(net)});
  return {.make = [net] { return zoo::make_efficientnet(net); },
          .parameters = zoo::parameter_count(net),
          .layers = zoo::block_count(net),
          .vocabulary = 0,
          .longest = std::nullopt,
          .image = config.count("image_size", 600)};
}

constexpr std::array<std::string_view, 1> kEfficientNetIgnored = {"classifier."};

constexpr std::array<Family, 2> kPictureFamilies = {
    {{"vit", describe_vit, kVitNames, "vit.", "", "ViTForImageClassification", picture_head, kVitIgnored, "", ""},
     {"efficientnet", describe_efficientnet, kEfficientNetNames, "efficientnet.", "",
      "EfficientNetForImageClassification", picture_head, kEfficientNetIgnored, "", ""}}};

}  // namespace

std::span<const Family> picture_families() { return kPictureFamilies; }

}  // namespace remat::pretrained
