#include <array>

#include "pretrained/families.h"
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

constexpr std::array<const char*, 2> kVitClassifier = {"classify.weight", "classify.bias"};
std::span<const char* const> vit_head(Task /*task*/) { return kVitClassifier; }

constexpr std::array<std::string_view, 3> kVitIgnored = {"classifier.", "vit.pooler.", "pooler."};

constexpr std::array<Family, 1> kPictureFamilies = {
    {{"vit", describe_vit, kVitNames, "vit.", "", "ViTForImageClassification", vit_head, kVitIgnored, "", ""}}};

}  // namespace

std::span<const Family> picture_families() { return kPictureFamilies; }

}  // namespace remat::pretrained
