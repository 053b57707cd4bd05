#include "cli/train_model.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

#include <unistd.h>

#include <remat/error.h>
#include <remat/file_memory.h>

#include "cli/interrupt.h"
#include "cli/special_file.h"
#include "cli/wrong_usage.h"
#include "pretrained/adapter.h"
#include "pretrained/model_directory.h"
#include "zoo/efficientnet.h"
#include "zoo/gpt.h"
#include "zoo/lora.h"
#include "zoo/mlp.h"
#include "zoo/resnet.h"
#include "zoo/vit.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;  // the vocabulary: every byte is a token

// Of float32, in bytes for each parameter.
constexpr int64_t kWeightBytes = 4;
constexpr int64_t kGradientBytes = 4;
constexpr int64_t kStateBytes = 8;  // two averages of AdamW

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

std::optional<zoo::LoraConfig> lora(const LoraSettings& settings) {
  if (settings.rank == 0) return std::nullopt;
  zoo::LoraConfig config{.rank = settings.rank, .alpha = settings.alpha.value_or(static_cast<double>(settings.rank))};
  std::istringstream targets(settings.targets);
  for (std::string target; std::getline(targets, target, ',');) config.layers.push_back(target);
  return config;
}

pretrained::ModelDirectory open_directory(const ModelSettings& settings, const data::Labels& labels) {
  pretrained::LoadOptions options{
      .task = pretrained::Task::kNextToken, .dropout = settings.dropout, .lora = lora(settings.lora)};
  if (settings.task == kMaskedTokens) options.task = pretrained::Task::kMaskedTokens;
  if (!labels.empty()) {
    options.task = pretrained::Task::kClassify;
    options.labels = labels.names;
  }
  if (!settings.page_weights.empty()) {
    options.place_weights = [directory = settings.page_weights] { return std::make_shared<FileMemory>(directory); };
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

zoo::EfficientNetConfig efficientnet(const data::Labels& labels) { return {.classes = labels.classes()}; }

[[noreturn]] void refuse(const ModelSettings& settings, const data::Labels& labels) {
  throw Error("[train] there is no model '" + settings.kind + "' for this task; use " +
              (labels.empty() ? "gpt or mlp" : "resnet18, resnet20, resnet50, resnet56, efficientnet or vit"));
}

std::shared_ptr<zoo::Model> make_new_model(const ModelSettings& settings, const data::Labels& labels) {
  if (labels.empty()) {
    if (settings.kind == "gpt") return zoo::make_gpt(gpt(settings));
    if (settings.kind == "mlp") return zoo::make_window_mlp(mlp(settings));
  } else {
    if (const auto config = resnet(settings, labels)) return zoo::make_resnet(*config);
    if (settings.kind == "efficientnet") return zoo::make_efficientnet(efficientnet(labels));
    if (settings.kind == "vit") return zoo::make_vit(vit(settings, labels));
  }
  refuse(settings, labels);
}

/// When it ends, what remove_when_interrupted() named stays.
struct UntilSaved {
  ~UntilSaved() { keep_when_interrupted(); }
};

/// May `option` write to the directory `to`, which must not have the file `foreign`? Nothing is created: a training
/// that is refused leaves nothing behind.
void check_directory(const TrainSettings& settings, const std::string& option, const std::string& to,
                     const std::string& foreign) {
  if (to.empty()) return;
  std::error_code error;
  if (fs::equivalent(to, settings.model.directory, error)) {
    throw Error("[" + option + "] '" + to + "' is where the model comes from; give another directory");
  }
  if (fs::exists(fs::path(to) / foreign, error)) {
    throw Error("[" + option + "] '" + to + "' holds " + foreign +
                ", and a model and an adapter in one directory are loaded as the adapter; give another directory");
  }
  auto existing = fs::absolute(to).lexically_normal();
  while (!fs::exists(fs::symlink_status(existing, error)) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  if (!fs::is_directory(existing, error)) {
    throw Error("[" + option + "] '" + to + "' cannot be a directory ('" + existing.string() +
                "' is a file); give another path");
  }
  if (access(existing.c_str(), W_OK | X_OK) != 0) {
    throw Error("[" + option + "] cannot write to '" + to + "' (" + std::strerror(errno) + "); give another directory");
  }
}

}  // namespace

std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings, const data::Labels& labels) {
  std::shared_ptr<zoo::Model> model;
  if (!settings.directory.empty()) {
    model = open_directory(settings, labels).load();
  } else {
    std::optional<FileMemory> place;
    if (!settings.page_weights.empty()) place.emplace(settings.page_weights);
    model = make_new_model(settings, labels);
    place.reset();
    if (const auto config = lora(settings.lora)) zoo::add_lora(*model, *config);
  }
  for (auto& parameter : model->parameters()) {  // a classifier is trained: steps would write it to the disk
    if (parameter.requires_grad() && FileMemory::holds(parameter)) parameter.set_data(parameter.clone());
  }
  FileMemory::settle(model->parameters());
  return model;
}

int64_t parameter_count(const ModelSettings& settings, const data::Labels& labels) {
  if (!settings.directory.empty()) return open_directory(settings, labels).parameter_count();
  if (labels.empty()) {
    if (settings.kind == "gpt") return zoo::parameter_count(gpt(settings));
    if (settings.kind == "mlp") return zoo::parameter_count(mlp(settings));
  } else {
    // Of one size each, and small enough to be built for it.
    if (const auto config = resnet(settings, labels)) return zoo::make_resnet(*config)->parameter_count();
    if (settings.kind == "efficientnet") return zoo::parameter_count(efficientnet(labels));
    if (settings.kind == "vit") return zoo::parameter_count(vit(settings, labels));
  }
  refuse(settings, labels);
}

void check_model_paths(const TrainSettings& settings) {
  // transformers would load the adapter in place of a model that lies beside it.
  check_directory(settings, "save-hf", settings.save_model, pretrained::kAdapterConfig);
  check_directory(settings, "save-adapter", settings.save_adapter, "config.json");
  if (settings.save_adapter.empty()) return;
  if (settings.model.task != kClassify) return pretrained::check_adapter(open_directory(settings.model, {}));
  // The labels are not read yet. What a BERT trains beside the factors has a place.
  if (std::error_code error; std::filesystem::is_directory(settings.data, error)) {
    pretrained::refuse_adapter_of_pictures();
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
    return name == "config.json" || name == pretrained::kAdapterConfig || name.ends_with(".safetensors") ||
           name.ends_with(".safetensors.index.json") || pretrained::is_copied(source / name);
  };
  for (const fs::path& directory : {source, fs::path(settings.save_model), fs::path(settings.save_adapter)}) {
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
  const UntilSaved until_saved;
  open_directory(settings, labels).save(model, to, remove_when_interrupted);
}

void save_adapter(const ModelSettings& settings, const data::Labels& labels, const zoo::Model& model,
                  const std::string& to) {
  const UntilSaved until_saved;
  pretrained::save_adapter(open_directory(settings, labels), model, to, remove_when_interrupted);
}

void check_model_fits(const TrainSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards,
                      const data::Labels& labels) {
  const ModelSettings& asked = settings.model;
  const int64_t count = parameter_count(asked, labels);
  const bool given = !asked.directory.empty(), sized = !given && has_layers(asked);
  const auto model =
      (given    ? "the model in '" + asked.directory + "' has "
       : !sized ? asked.kind + " has "
                : std::to_string(asked.layers) + " layers of width " + std::to_string(asked.width) + " have ") +
      std::to_string(count) + " parameters, which need ";
  const std::string smaller = sized ? "lower --layers or --width" : "take a smaller model";
  const bool frozen = asked.lora.rank > 0;
  const bool has_gradients =
      !frozen && !(settings.optimizer_in_backward && settings.accumulate == 1) && settings.page_gradients.empty();
  const bool has_state = !frozen && settings.page_optimizer.empty();
  const bool has_weights = asked.page_weights.empty();
  const int64_t step = count / shards * ((has_weights ? kWeightBytes : 0) + (has_gradients ? kGradientBytes : 0));
  const int64_t training = step + count / shards * (has_state ? kStateBytes : 0);
  const std::string gradients = has_gradients ? " with gradients" : "";
  if (training > machine_bytes) {
    const std::string state = !has_state ? "" : has_gradients ? " and optimizer state" : " with optimizer state";
    throw Error("[train] " + model + format_exact_bytes(training) + gradients + state + "; the machine has " +
                format_exact_bytes(machine_bytes) + "; " + smaller);
  }
  if (budget.kind() == Budget::Kind::kBytes && step > budget.byte_count()) {
    throw BudgetError("[train] " + model + format_exact_bytes(step) + gradients + "; the budget is " +
                          format_exact_bytes(budget.byte_count()) + "; " + std::string(kLargerBudget) + ", or " +
                          smaller,
                      budget.byte_count(), step, std::nullopt);
  }
}

}  // namespace remat::cli
