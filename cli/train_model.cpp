#include "cli/train_model.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include <unistd.h>

#include <remat/error.h>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/special_file.h"
#include "pretrained/model_directory.h"
#include "zoo/gpt.h"
#include "zoo/mlp.h"
#include "zoo/resnet.h"
#include "zoo/vit.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;  // the vocabulary: every byte is a token

// Of float32, in bytes for each parameter.
constexpr int64_t kStepBytes = 8;       // itself, its gradient
constexpr int64_t kTrainingBytes = 16;  // and two averages of AdamW

zoo::GptConfig gpt(const ModelSettings& settings) {
  return {.layers = settings.layers,
          .width = settings.width,
          .heads = settings.heads,
          .seq = settings.seq,
          .vocab = kBytes,
          .dropout = settings.dropout.value_or(kUsualDropout)};
}

zoo::WindowMlpConfig mlp(const ModelSettings& settings) {
  return {.layers = settings.layers, .width = settings.width, .seq = settings.seq, .vocab = kBytes};
}

pretrained::ModelDirectory open_directory(const ModelSettings& settings, const data::Labels& labels) {
  pretrained::LoadOptions options{.task = pretrained::Task::kNextToken, .dropout = settings.dropout};
  if (settings.task == kMaskedTokens) options.task = pretrained::Task::kMaskedTokens;
  if (!labels.empty()) {
    options.task = pretrained::Task::kClassify;
    options.labels = labels.names;
  }
  return {settings.directory, options};
}

zoo::VitConfig vit(const ModelSettings& settings, const data::Labels& labels) {
  return {.image = picture_side(settings),
          .patch = patch_side(settings),
          .layers = settings.layers,
          .width = settings.width,
          .heads = settings.heads,
          .hidden = 4 * settings.width,
          .classes = labels.classes(),
          .dropout = settings.dropout.value_or(kUsualDropout)};
}

/// Nothing where `settings` ask for another kind of model. Of those for ImageNet, the stem that halves pictures twice
/// is for large ones.
std::optional<zoo::ResNetConfig> resnet(const ModelSettings& settings, const data::Labels& labels) {
  if (settings.kind == "resnet20") return zoo::cifar_resnet_config(20, labels.classes());
  if (settings.kind == "resnet56") return zoo::cifar_resnet_config(56, labels.classes());
  if (settings.kind != "resnet18" && settings.kind != "resnet50") return std::nullopt;
  auto config = zoo::resnet_config(settings.kind == "resnet18" ? 18 : 50);
  config.classes = labels.classes();
  config.small_images = picture_side(settings) < 64;
  return config;
}

[[noreturn]] void refuse(const ModelSettings& settings, const data::Labels& labels) {
  throw Error("[train] there is no model '" + settings.kind + "' for this task; use " +
              (labels.empty() ? "gpt or mlp" : "resnet18, resnet20, resnet50, resnet56 or vit"));
}

}  // namespace

std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings, const data::Labels& labels) {
  if (!settings.directory.empty()) return open_directory(settings, labels).load();
  if (labels.empty()) {
    if (settings.kind == "gpt") return zoo::make_gpt(gpt(settings));
    if (settings.kind == "mlp") return zoo::make_window_mlp(mlp(settings));
  } else {
    if (const auto config = resnet(settings, labels)) return zoo::make_resnet(*config);
    if (settings.kind == "vit") return zoo::make_vit(vit(settings, labels));
  }
  refuse(settings, labels);
}

int64_t parameter_count(const ModelSettings& settings, const data::Labels& labels) {
  if (!settings.directory.empty()) return open_directory(settings, labels).parameter_count();
  if (labels.empty()) {
    if (settings.kind == "gpt") return zoo::parameter_count(gpt(settings));
    if (settings.kind == "mlp") return zoo::parameter_count(mlp(settings));
  } else {
    // Of one size each, and small enough to be built for it.
    if (const auto config = resnet(settings, labels)) return zoo::make_resnet(*config)->parameter_count();
    if (settings.kind == "vit") return zoo::parameter_count(vit(settings, labels));
  }
  refuse(settings, labels);
}

void check_model_path(const ModelSettings& settings, const std::string& to) {
  std::error_code error;
  if (fs::equivalent(to, settings.directory, error)) {
    throw Error("[save-hf] '" + to + "' is where the model comes from; give another directory");
  }
  // Nothing is created: a training that is refused leaves nothing behind.
  auto existing = fs::absolute(to).lexically_normal();
  while (!fs::exists(fs::symlink_status(existing, error)) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  if (!fs::is_directory(existing, error)) {
    throw Error("[save-hf] '" + to + "' cannot be a directory ('" + existing.string() +
                "' is a file); give another path");
  }
  if (access(existing.c_str(), W_OK | X_OK) != 0) {
    throw Error("[save-hf] cannot write to '" + to + "' (" + std::strerror(errno) + "); give another directory");
  }
}

void check_no_model_file(const TrainSettings& settings, const std::string& path, const std::string& option) {
  if (path.empty() || settings.model.directory.empty() || is_special_file(path)) return;
  std::error_code error;
  const auto real = [&](const fs::path& file) { return fs::weakly_canonical(fs::absolute(file), error); };
  const auto refuse = [&] {
    throw UsageError("[options] " + option + " '" + path + "' is a file of the model's directory; give another path");
  };
  const fs::path source = settings.model.directory, file = follow_links(path);
  const auto is_model_file = [&](const std::string& name) {
    return name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
           pretrained::is_copied(source / name);
  };
  for (const fs::path& directory : {source, fs::path(settings.save_model)}) {
    if (directory.empty()) continue;
    for (const fs::path& written : {fs::path(path), file}) {
      const auto parent = fs::absolute(written).parent_path();
      const bool within = fs::equivalent(parent, directory, error) || real(parent) == real(directory);
      if (within && is_model_file(written.filename().string())) refuse();
    }
  }
  for (const auto& entry : fs::directory_iterator(source, error)) {  // one that a link in the directory leads to
    if (is_model_file(entry.path().filename().string()) && real(entry.path()) == real(file)) refuse();
  }
}

void save_model(const ModelSettings& settings, const data::Labels& labels, const zoo::Model& model,
                const std::string& to) {
  struct NotKept {
    ~NotKept() { keep_when_interrupted(); }
  } const until_it_is_saved;
  open_directory(settings, labels).save(model, to, remove_when_interrupted);
}

void check_model_fits(const ModelSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards,
                      const data::Labels& labels) {
  const int64_t count = parameter_count(settings, labels);
  const bool given = !settings.directory.empty(), sized = !given && has_layers(settings);
  const auto model =
      (given    ? "the model in '" + settings.directory + "' has "
       : !sized ? settings.kind + " has "
                : std::to_string(settings.layers) + " layers of width " + std::to_string(settings.width) + " have ") +
      std::to_string(count) + " parameters, which need ";
  const std::string smaller = sized ? "lower --layers or --width" : "take a smaller model";
  const int64_t training = count / shards * kTrainingBytes, step = count / shards * kStepBytes;
  if (training > machine_bytes) {
    throw Error("[train] " + model + format_exact_bytes(training) +
                " with gradients and optimizer state; the machine has " + format_exact_bytes(machine_bytes) + "; " +
                smaller);
  }
  if (budget.kind() == Budget::Kind::kBytes && step > budget.byte_count()) {
    throw BudgetError("[train] " + model + format_exact_bytes(step) + " with gradients; the budget is " +
                          format_exact_bytes(budget.byte_count()) + "; give a larger one, or " + smaller,
                      budget.byte_count(), step, std::nullopt);
  }
}

}  // namespace remat::cli
