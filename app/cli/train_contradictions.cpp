#include "cli/train_contradictions.h"

#include <algorithm>
#include <string>

#include <remat/budget.h>

#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

constexpr int64_t kLeastBertSeq = 3;  // [CLS], a token, [SEP]

// What is wrong with options that were given, and where they stand: both, one or none of them in the config file.
class Contradictions {
 public:
  explicit Contradictions(const TrainOptions& options) : options_(options) {}

  /// `option` has no effect beside `cause`, which is the option `cause_name` as given.
  void refuse_ineffective(const std::string& option, const std::string& cause_name, const std::string& cause) const {
    const bool on_line = options_.on_command_line.contains(option), in_config = options_.in_config.contains(option);
    // The command line comes first: what it makes idle in the file may stay there.
    if (!on_line && !(in_config && from_config(cause_name))) return;
    throw UsageError(where({option, cause_name}) + option + " has no effect with " + cause + "; leave one of them out");
  }

  /// `option` has no effect without `needed`.
  void refuse_alone(const std::string& option, const std::string& needed) const {
    if (!options_.on_command_line.contains(option) && !options_.in_config.contains(option)) return;
    throw UsageError(where({option}) + option + " has no effect without " + needed + "; add it, or leave " + option +
                     " out");
  }

  /// "[options] ", and the file where one of `names` stands in it.
  std::string where(const std::vector<std::string>& names) const {
    const bool in_config = std::ranges::any_of(names, [&](const auto& name) { return from_config(name); });
    return in_config ? "[config] with '" + options_.config + "', " : "[options] ";
  }

 private:
  bool from_config(const std::string& name) const {
    return options_.in_config.contains(name) && !options_.on_command_line.contains(name);
  }

  const TrainOptions& options_;
};

void check_game(const TrainSettings& settings, const Contradictions& contradictions) {
  if (settings.model.kind != "dqn") {
    throw UsageError(contradictions.where({"--task", "--model"}) + "--task rl needs --model dqn, not " +
                     settings.model.kind + "; leave --model out");
  }
  for (const auto* option : {"--data",          "--eval",           "--hf",           "--layers",
                             "--width",         "--heads",          "--seq",          "--shard",
                             "--image-size",    "--dropout",        "--lora",         "--lora-alpha",
                             "--lora-targets",  "--save-adapter",   "--accumulate",   "--text-column",
                             "--ranks",         "--precision",      "--save-plan",    "--save-run",
                             "--plan",          "--label-column",   "--save-hf",      "--optimizer-in-backward",
                             "--disk",          "--page-optimizer", "--page-weights", "--head",
                             "--page-gradients"}) {
    contradictions.refuse_ineffective(option, "--task", "--task rl");
  }
}

void check_task(const TrainSettings& settings, const Contradictions& contradictions) {
  const auto& model = settings.model;
  const bool for_texts = model.kind == "gpt" || model.kind == "mlp";
  if (model.directory.empty() && for_texts && model.task == kClassify) {
    throw UsageError(contradictions.where({"--task", "--model"}) +
                     "--task classify needs a model that classifies; name one with --hf, for texts, or --model "
                     "(resnet18, resnet20, resnet50, resnet56, efficientnet, vit), for pictures");
  }
  if (model.kind == "dqn") {
    throw UsageError(contradictions.where({"--task", "--model"}) +
                     "--model dqn needs --task rl; add it, or take another model");
  }
  if (!for_texts && model.task != kClassify) {
    throw UsageError(contradictions.where({"--task", "--model"}) + "--model " + model.kind +
                     " needs --task classify; add it, or take gpt or mlp");
  }
  if (model.task == kMaskedTokens && model.directory.empty()) {
    throw UsageError(contradictions.where({"--task"}) +
                     "--task mlm needs a model that sees both sides of a hidden token; name a bert with --hf");
  }
  if (model.task == kClassify) contradictions.refuse_ineffective("--head", "--task", "--task classify");
  if (!model.directory.empty()) contradictions.refuse_ineffective("--image-size", "--hf", "--hf");
  if (model.task != kClassify) {
    for (const auto* option : {"--text-column", "--label-column", "--image-size"}) {
      contradictions.refuse_ineffective(option, "--task", "--task " + model.task);
    }
  } else if (learns_pictures(settings)) {
    for (const auto* option : {"--text-column", "--label-column", "--seq"}) {
      contradictions.refuse_ineffective(option, "--model", "--task classify without --hf");
    }
    if (model.kind == "vit" && picture_side(model) % patch_side(model) != 0) {
      throw UsageError(contradictions.where({"--image-size"}) + "--image-size " + std::to_string(model.image_size) +
                       " is not a multiple of " + std::to_string(patch_side(model)) +
                       ", the size of a vit's patches; change it");
    }
    return;
  }
  if (model.task != kNextToken && model.seq < kLeastBertSeq) {
    throw UsageError(contradictions.where({"--seq"}) + "--seq " + std::to_string(model.seq) +
                     " has no room for a token between [CLS] and [SEP]; give " + std::to_string(kLeastBertSeq) +
                     " or more");
  }
}

}  // namespace

void refuse_contradictions(const TrainOptions& options, const TrainSettings& settings) {
  const Contradictions contradictions(options);
  const auto& model = settings.model;
  if (settings.plain) {
    for (const auto* option : {"--budget", "--planner", "--disk", "--plan", "--save-plan", "--save-run", "--head"}) {
      contradictions.refuse_ineffective(option, "--plain", "--plain");
    }
  }
  if (settings.checkpoint.empty() && (settings.resume || settings.checkpoint_every > 0)) {
    throw UsageError(contradictions.where({"--resume", "--checkpoint-every"}) +
                     "--resume and --checkpoint-every need a file; name it with --checkpoint");
  }
  if (model.task == kReinforce) return check_game(settings, contradictions);
  contradictions.refuse_ineffective("--game", "--task", "--task " + model.task);
  if (!model.directory.empty()) {
    for (const auto* option : {"--model", "--layers", "--width", "--heads"}) {
      contradictions.refuse_ineffective(option, "--hf", "--hf");
    }
  } else if (model.kind != "gpt" && model.kind != "vit") {
    if (model.kind == "mlp") contradictions.refuse_ineffective("--head", "--model", "--model mlp");
    for (const auto* option : {"--heads", "--dropout"}) {
      contradictions.refuse_ineffective(option, "--model", "--model " + model.kind);
    }
    for (const auto* option : {"--layers", "--width"}) {
      if (!has_layers(model)) contradictions.refuse_ineffective(option, "--model", "--model " + model.kind);
    }
  }
  check_task(settings, contradictions);
  if (model.lora.rank == 0) {
    for (const auto* option : {"--lora-alpha", "--lora-targets", "--save-adapter", "--page-weights"}) {
      contradictions.refuse_alone(option, "--lora");
    }
  }
  if (model.directory.empty()) contradictions.refuse_alone("--save-adapter", "--hf");
  if (model.directory.empty() && !settings.save_model.empty()) {
    throw UsageError(contradictions.where({"--save-hf"}) +
                     "--save-hf has no effect without --hf; use --checkpoint, or leave it out");
  }
  if (settings.accumulate > settings.batch) {
    throw UsageError(contradictions.where({"--accumulate", "--batch"}) + "--accumulate " +
                     std::to_string(settings.accumulate) + " is more than --batch " + std::to_string(settings.batch) +
                     ", and a micro-batch needs an example; change one of them");
  }
  if (settings.ranks == 1) contradictions.refuse_ineffective("--shard", "--ranks", "one process");
  // Shards are copies.
  if (settings.shard) contradictions.refuse_ineffective("--page-weights", "--shard", "--shard");
  if (settings.batch % settings.ranks != 0) {
    throw UsageError(contradictions.where({"--batch", "--ranks"}) + "--batch " + std::to_string(settings.batch) +
                     " is not a multiple of the " + std::to_string(settings.ranks) +
                     " processes that share it; change one of them");
  }
  if (const int64_t rows = settings.batch / settings.ranks; settings.accumulate > rows) {
    throw UsageError(contradictions.where({"--accumulate", "--batch", "--ranks"}) + "--accumulate " +
                     std::to_string(settings.accumulate) + " is more than the " + std::to_string(rows) +
                     " examples that each process has of --batch " + std::to_string(settings.batch) +
                     ", and a micro-batch needs an example; change one of them");
  }
  if (settings.ranks > 1 && Budget::parse(settings.budget) == Budget::pressure()) {
    throw UsageError(contradictions.where({"--budget", "--ranks"}) +
                     "--budget pressure is for one process: each of several would take what is left; give bytes or a "
                     "share, or leave --ranks out");
  }
  if (!settings.page_gradients.empty() && (settings.ranks > 1 || settings.shard)) {
    throw UsageError(contradictions.where({"--page-gradients", "--ranks", "--shard"}) +
                     "--page-gradients is for one process: those of several average gradients in memory; leave it out");
  }
  if (settings.optimizer_in_backward) {
    contradictions.refuse_ineffective("--page-gradients", "--optimizer-in-backward", "--optimizer-in-backward");
    if (settings.clip > 0) {
      throw UsageError(contradictions.where({"--clip", "--optimizer-in-backward"}) +
                       "--clip needs all gradients at once, and --optimizer-in-backward frees each as soon as it is "
                       "complete; leave one of them out, or take --page-gradients in the place of the second");
    }
  }
  if (settings.planner == "online" && settings.plan.empty()) {
    contradictions.refuse_ineffective("--save-plan", "--planner", "--planner online");
    contradictions.refuse_ineffective("--disk", "--planner", "--planner online");
    contradictions.refuse_ineffective("--save-run", "--planner", "--planner online");
  }
  if (settings.data.empty()) throw UsageError("[options] --data is missing; name a file");
  if (model.directory.empty() && (model.kind == "gpt" || model.kind == "vit") && model.width % model.heads != 0) {
    throw UsageError(contradictions.where({"--width", "--heads"}) + "--width " + std::to_string(model.width) +
                     " is not a multiple of --heads " + std::to_string(model.heads) + "; change one of them");
  }
}

}  // namespace remat::cli
