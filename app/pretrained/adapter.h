// pretrained/adapter.h -- what LoRA has trained, in the form of Hugging Face's library peft: adapter_config.json and
// adapter_model.safetensors, a few megabytes beside the weights of the model that they belong to.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "pretrained/model_directory.h"

namespace remat::pretrained {

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";

/// Throws Error where the model of `base`, which has options for LoRA, could not be saved as an adapter: peft has no
/// place for all that is trained of a BERT without weights for its prediction of tokens, the modules of a ViT are
/// called differently in each version of transformers, and those of an EfficientNet take no factors.
void check_adapter(const ModelDirectory& base);
/// As check_adapter() does for a model that sees pictures.
[[noreturn]] void refuse_adapter_of_pictures();

/// Writes factors and trained parameters of `model`, one that base.load() made, to `to` so that peft loads them for the
/// model in `base`, which the adapter names by its path as given. `to` is created. Throws Error as check_adapter()
/// does, and where writing fails: then nothing of `to` has changed. `on_part` as that of ModelDirectory::save().
void save_adapter(const ModelDirectory& base, const zoo::Model& model, const std::filesystem::path& to,
                  const std::function<void(const std::string& part)>& on_part = {});

}  // namespace remat::pretrained
