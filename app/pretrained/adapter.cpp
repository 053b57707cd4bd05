#include "pretrained/adapter.h"

#include <set>

#include <remat/error.h>

#include "pretrained/staged_files.h"

namespace remat::pretrained {
namespace {

constexpr const char* kPrefix = "base_model.model.";

nlohmann::ordered_json config_of(const ModelDirectory& base, const std::vector<std::string>& layers, bool transposed,
                                 const std::set<std::string>& trained_modules) {
  const zoo::LoraConfig& lora = base.options().lora.value();
  nlohmann::ordered_json config = {
      {"peft_type", "LORA"},      {"task_type", nullptr},       {"base_model_name_or_path", base.path().string()},
      {"r", lora.rank},           {"lora_alpha", lora.alpha},   {"lora_dropout", 0.0},
      {"target_modules", layers}, {"modules_to_save", nullptr}, {"fan_in_fan_out", transposed},
      {"bias", "none"},           {"init_lora_weights", true},  {"inference_mode", true}};
  if (base.options().task == Task::kNextToken) config["task_type"] = "CAUSAL_LM";
  if (base.options().task == Task::kClassify) config["task_type"] = "SEQ_CLS";
  if (!trained_modules.empty()) config["modules_to_save"] = trained_modules;
  return config;
}

}  // namespace

void refuse_adapter_of_pictures() {
  throw Error(
      "[adapter] versions of transformers differ in the names of a vit's layers, and peft goes by these; the layers of "
      "an efficientnet take no factors; save the merged model with --save-hf");
}

void check_adapter(const ModelDirectory& base) {
  if (base.image() > 0) refuse_adapter_of_pictures();
  if (base.options().task == Task::kMaskedTokens && !base.missing().empty()) {
    throw Error("[adapter] '" + base.path().string() + "' has no weights for '" + base.missing().front() +
                "', which is trained beside the factors, and peft has no place for it; save the merged model");
  }
}

void save_adapter(const ModelDirectory& base, const zoo::Model& model, const std::filesystem::path& to,
                  const std::function<void(const std::string& part)>& on_part) {
  check_adapter(base);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::vector<std::string> layers;
  std::set<std::string> trained_modules;
  bool transposed = false;
  for (const auto& [name, layer] : zoo::lora_layers(model)) {
    layers.push_back(base.layer_name(name));
    transposed = base.name_of(name + ".weight").transposed;  // of all, or of none
    tensors.emplace_back(kPrefix + layers.back() + ".lora_A.weight", layer->lora_a());
    tensors.emplace_back(kPrefix + layers.back() + ".lora_B.weight", layer->lora_b());
  }
  for (const auto& [name, parameter] : zoo::merged_parameters(model)) {
    if (!parameter.requires_grad()) continue;
    const auto theirs = base.name_of(name).name;
    trained_modules.insert(classifier_of(theirs).value_or(theirs.substr(0, theirs.rfind('.'))));
    tensors.emplace_back(kPrefix + theirs, parameter);
  }
  StagedFiles staged(to);
  staged.add(kAdapterWeights, [&](support::ReplacementFile& file) {
    if (on_part) on_part(file.part());
    return write_safetensors(file, tensors);
  });
  staged.add_text(kAdapterConfig, config_of(base, layers, transposed, trained_modules).dump(2) + '\n');
  staged.commit();
}

}  // namespace remat::pretrained
