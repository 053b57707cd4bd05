#include "cli/settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>

#include <remat/budget.h>

namespace remat::cli {

namespace {

/// "bert" of "./bert/".
std::string normal_path(const std::filesystem::path& path) {
  const auto normal = path.lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

}  // namespace

Disk place_of_state(const std::string& text) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();  // as much as the disk has
  std::error_code unknown;
  if (std::filesystem::is_directory(text, unknown)) return {text, kAll};  // "2026:01" may be one
  const bool has_bytes = std::isdigit(static_cast<unsigned char>(text.front())) != 0 && text.find(':') < text.size();
  return has_bytes ? Disk::parse(text) : Disk(text, kAll);
}

nlohmann::json decisive(const TrainSettings& settings) {
  const auto& model = settings.model;
  nlohmann::json json = {{"batch", settings.batch}, {"lr", settings.lr}, {"seed", settings.seed}};
  if (model.task == kReinforce) {
    json["game"] = settings.game;
  } else {
    json["seq"] = model.seq;
  }
  if (model.directory.empty()) {
    json["model"] = model.kind;
    if (has_layers(model)) {
      json["layers"] = model.layers;
      json["width"] = model.width;
    }
  } else {
    json["hf"] = normal_path(model.directory);
    if (model.dropout) json["dropout"] = *model.dropout;
  }
  if (model.directory.empty() && (model.kind == "gpt" || model.kind == "vit")) {
    json["heads"] = model.heads;
    json["dropout"] = model.dropout.value_or(kUsualDropout);
  }
  if (model.task != kNextToken) json["task"] = model.task;
  if (model.image_size != 0) json["image-size"] = model.image_size;
  if (model.task == kClassify && !learns_pictures(settings)) {
    json["text-column"] = settings.columns.text;
    json["label-column"] = settings.columns.label;
  }
  if (const auto& lora = model.lora; lora.rank > 0) {
    json["lora"] = lora.rank;
    json["lora-alpha"] = lora.alpha.value_or(static_cast<double>(lora.rank));
    if (!lora.targets.empty()) json["lora-targets"] = lora.targets;
  }
  if (settings.accumulate != 1) json["accumulate"] = settings.accumulate;
  const TrainSettings usual;
  if (settings.warmup != usual.warmup) json["warmup"] = settings.warmup;
  if (settings.weight_decay != usual.weight_decay) json["weight_decay"] = settings.weight_decay;
  if (settings.clip != usual.clip) json["clip"] = settings.clip;
  if (settings.schedule != usual.schedule) {
    json["schedule"] = settings.schedule;
    json["steps"] = settings.steps;
  }
  if (settings.precision != "float32") json["precision"] = settings.precision;
  if (settings.ranks > 1) {
    json["ranks"] = settings.ranks;
    if (settings.shard) json["shard"] = true;
  }
  return json;
}

double learning_rate(const TrainSettings& settings, int64_t step) {
  if (step <= settings.warmup) return settings.lr * static_cast<double>(step) / static_cast<double>(settings.warmup);
  if (settings.schedule != "cosine") return settings.lr;
  const double left = static_cast<double>(settings.steps - step + 1) /
                      static_cast<double>(std::max<int64_t>(1, settings.steps - settings.warmup));
  return settings.lr * 0.5 * (1 - std::cos(std::numbers::pi * std::max(0.0, left)));
}

std::string budget_text(const std::string& budget) {
  const auto parsed = Budget::parse(budget);
  return parsed.kind() == Budget::Kind::kDeviceLimit ? parsed.to_string() : budget;
}

std::string model_text(const ModelSettings& settings) {
  if (!settings.directory.empty()) return settings.directory;
  if (!has_layers(settings)) return settings.kind;
  return settings.kind + ": " + std::to_string(settings.layers) + " layers of width " + std::to_string(settings.width);
}

bool learns_conversations(const ModelSettings& settings, const std::string& path) {
  return settings.task == kNextToken && !settings.directory.empty() && path.ends_with(".jsonl");
}

int64_t items_per_step(const TrainSettings& settings) {
  if (settings.model.task == kClassify || settings.model.task == kReinforce) return settings.batch;
  if (learns_conversations(settings.model, settings.data)) return settings.batch;
  return settings.batch * (predicts_every_token(settings.model) ? settings.model.seq : 1);
}

std::string item_name(const TrainSettings& settings) {
  if (settings.model.task == kReinforce) return "transitions";
  const bool examples = settings.model.task == kClassify || learns_conversations(settings.model, settings.data);
  return examples ? "examples" : "tokens";
}

std::string differences(const nlohmann::json& theirs, const nlohmann::json& ours) {
  std::string text;
  const auto value = [](const nlohmann::json& json) { return json.is_null() ? "left out" : json.dump(); };
  const auto add = [&](const std::string& name, const nlohmann::json& their, const nlohmann::json& our) {
    text += (text.empty() ? "" : ", ") + name + " " + value(their) + " (here " + value(our) + ")";
  };
  for (const auto& [name, their] : theirs.items()) {
    if (!ours.contains(name)) {
      add(name, their, nullptr);
    } else if (ours.at(name) != their) {
      add(name, their, ours.at(name));
    }
  }
  for (const auto& [name, our] : ours.items()) {
    if (!theirs.contains(name)) add(name, nullptr, our);
  }
  return text;
}

}  // namespace remat::cli
