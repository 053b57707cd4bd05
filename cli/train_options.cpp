#include "cli/train_options.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include <remat/budget.h>
#include <remat/planner.h>

#include "cli/different_files.h"
#include "cli/option_adder.h"
#include "cli/options.h"

namespace remat::cli {
namespace {

constexpr int64_t kLeastBertSeq = 3;  // [CLS], a token, [SEP]

void add_model_options(OptionAdder& add, TrainOptions& options, bool train) {
  auto& model = options.settings.model;
  add.group("What to train");
  add.choice("--task", model.task, {kNextToken, kMaskedTokens, kClassify},
             "next-token: predict every next token of a text. mlm: predict tokens of a text that are hidden\n(--hf "
             "with a bert). classify: tell the label of every text (--hf with a bert) or picture (--model\nresnet18 "
             "and the like)");
  add.file(
      "--data", options.settings.data,
      "Text to learn from: its bytes, or with --hf the tokens of that tokenizer. To classify:\nlabelled texts, a .csv "
      "file with a header or a .jsonl file, or a directory with the files of\nMNIST, CIFAR-10 or CIFAR-100");
  if (train) {
    add.file("--eval", options.settings.held_out,
             "A file like --data that is not learnt from: its loss before and after the training, and\nthe share of "
             "labels told right");
  }
  add.add("--text-column", options.settings.columns.text, "Column of the texts (classify)")->type_name("NAME");
  add.add("--label-column", options.settings.columns.label, "Column of the labels (classify)")->type_name("NAME");
  add.file("--hf", model.directory,
           "Fine-tune the model in this directory of Hugging Face's form: config.json (gpt2 or\nllama; bert for "
           "mlm and classify), model.safetensors, tokenizer")
      ->type_name("DIR");
  add.choice(
      "--model", model.kind, {"gpt", "mlp", "resnet18", "resnet20", "resnet56", "vit"},
      "gpt: predict every next byte. mlp: predict the byte after a window. The others classify\npictures of 32 x "
      "32 pixels");
  add.count("--layers", model.layers, "Blocks", kMostLayers);
  add.count("--width", model.width, "Numbers per position", kMostWidth);
  add.count("--heads", model.heads, "Attention heads, a divisor of the width (gpt, vit)", kMostWidth);
  add.count("--seq", options.seq, "Tokens of context (128; mlp: 32); to classify: longer texts are cut", kMostSeq);
  add.add("--dropout", model.dropout, "Share of values zeroed in training (gpt, vit: 0.1, --hf: as config.json says)")
      ->transform(range(0.0, 0.999))
      ->type_name("P");
}

void add_planner_option(OptionAdder& add, TrainSettings& settings) {
  std::vector<std::string> names = {"online"};
  std::string text =
      "Who decides what to recompute. online: under pressure, step by step. The others plan all\n"
      "steps after the first:";
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == names.front()) continue;  // its plans are what it does anyway
    names.emplace_back(info.name);
    text += "\n" + names.back() + ": " + std::string(info.description);
  }
  add.choice("--planner", settings.planner, names, text);
}

// What is wrong with options that were given, and where they stand: both, one or none of them in the config file.
class Contradictions {
 public:
  explicit Contradictions(const TrainOptions& options) : options_(options) {}

  /// `option` has no effect beside `cause`, which is the option `cause_name` as given.
  void refuse_ineffective(const std::string& option, const std::string& cause_name, const std::string& cause) const {
    const bool on_line = options_.on_command_line.contains(option), in_config = options_.in_config.contains(option);
    // The command line comes first: what it makes idle in the file may stay there.
    if (!on_line && !(in_config && options_.in_config.contains(cause_name))) return;
    throw UsageError(where({option, cause_name}) + option + " has no effect with " + cause + "; leave one of them out");
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

void check_task(const TrainSettings& settings, const Contradictions& contradictions) {
  const auto& model = settings.model;
  const bool for_texts = model.kind == "gpt" || model.kind == "mlp";
  if (model.directory.empty() && for_texts && model.task == kClassify) {
    throw UsageError(contradictions.where({"--task", "--model"}) +
                     "--task classify needs a model that classifies; name one with --hf, for texts, or --model "
                     "(resnet18, resnet20, resnet56, vit), for pictures");
  }
  if (!for_texts && model.task != kClassify) {
    throw UsageError(contradictions.where({"--task", "--model"}) + "--model " + model.kind +
                     " needs --task classify; add it, or take gpt or mlp");
  }
  if (model.task == kMaskedTokens && model.directory.empty()) {
    throw UsageError(contradictions.where({"--task"}) +
                     "--task mlm needs a model that sees both sides of a hidden token; name a bert with --hf");
  }
  if (model.task != kClassify) {
    for (const auto* option : {"--text-column", "--label-column"}) {
      contradictions.refuse_ineffective(option, "--task", "--task " + model.task);
    }
  } else if (learns_pictures(settings)) {
    for (const auto* option : {"--text-column", "--label-column", "--seq"}) {
      contradictions.refuse_ineffective(option, "--model", "--task classify without --hf");
    }
    return;
  }
  if (model.task != kNextToken && model.seq < kLeastBertSeq) {
    throw UsageError(contradictions.where({"--seq"}) + "--seq " + std::to_string(model.seq) +
                     " has no room for a token between [CLS] and [SEP]; give " + std::to_string(kLeastBertSeq) +
                     " or more");
  }
}

void refuse_contradictions(const TrainOptions& options, const TrainSettings& settings) {
  const Contradictions contradictions(options);
  const auto& model = settings.model;
  if (!model.directory.empty()) {
    for (const auto* option : {"--model", "--layers", "--width", "--heads"}) {
      contradictions.refuse_ineffective(option, "--hf", "--hf");
    }
  } else if (model.kind != "gpt" && model.kind != "vit") {
    for (const auto* option : {"--heads", "--dropout"}) {
      contradictions.refuse_ineffective(option, "--model", "--model " + model.kind);
    }
    for (const auto* option : {"--layers", "--width"}) {
      if (!has_layers(model)) contradictions.refuse_ineffective(option, "--model", "--model " + model.kind);
    }
  }
  check_task(settings, contradictions);
  if (settings.plain) {
    for (const auto* option : {"--budget", "--planner", "--plan", "--save-plan", "--save-run"}) {
      contradictions.refuse_ineffective(option, "--plain", "--plain");
    }
  }
  if (model.directory.empty() && !settings.save_model.empty()) {
    throw UsageError(contradictions.where({"--save-hf"}) +
                     "--save-hf has no effect without --hf; use --checkpoint, or leave it out");
  }
  if (settings.accumulate > settings.batch) {
    throw UsageError(contradictions.where({"--accumulate", "--batch"}) + "--accumulate " +
                     std::to_string(settings.accumulate) + " is more than --batch " + std::to_string(settings.batch) +
                     ", and a micro-batch needs an example; change one of them");
  }
  if (settings.accumulate > 1) {
    contradictions.refuse_ineffective("--shard", "--accumulate", "--accumulate yet");
  }
  if (settings.clip > 0) contradictions.refuse_ineffective("--shard", "--clip", "--clip yet");
  if (settings.ranks == 1) contradictions.refuse_ineffective("--shard", "--ranks", "--ranks 1");
  if (settings.ranks > 1) {
    for (const auto* option : {"--checkpoint", "--checkpoint-every", "--resume", "--plan", "--save-plan", "--save-run",
                               "--save-hf", "--eval"}) {
      contradictions.refuse_ineffective(option, "--ranks", "--ranks " + std::to_string(settings.ranks) + " yet");
    }
    if (settings.batch % settings.ranks != 0) {
      throw UsageError(contradictions.where({"--batch", "--ranks"}) + "--batch " + std::to_string(settings.batch) +
                       " is not a multiple of --ranks " + std::to_string(settings.ranks) + "; change one of them");
    }
  }
  if (settings.optimizer_in_backward) {
    if (settings.clip > 0) {
      throw UsageError(contradictions.where({"--clip", "--optimizer-in-backward"}) +
                       "--clip needs all gradients at once, and --optimizer-in-backward frees each as soon as it is "
                       "complete; leave one of them out");
    }
    if (settings.ranks > 1) {
      contradictions.refuse_ineffective("--optimizer-in-backward", "--ranks",
                                        "--ranks " + std::to_string(settings.ranks) + " yet");
    }
  }
  if (settings.planner == "online" && settings.plan.empty()) {
    contradictions.refuse_ineffective("--save-plan", "--planner", "--planner online");
    contradictions.refuse_ineffective("--save-run", "--planner", "--planner online");
  }
  if (settings.data.empty()) throw UsageError("[options] --data is missing; name a file");
  if (model.directory.empty() && (model.kind == "gpt" || model.kind == "vit") && model.width % model.heads != 0) {
    throw UsageError(contradictions.where({"--width", "--heads"}) + "--width " + std::to_string(model.width) +
                     " is not a multiple of --heads " + std::to_string(model.heads) + "; change one of them");
  }
  if (settings.checkpoint.empty() && (settings.resume || settings.checkpoint_every > 0)) {
    throw UsageError(contradictions.where({"--resume", "--checkpoint-every"}) +
                     "--resume and --checkpoint-every need a file; name it with --checkpoint");
  }
}

/// The file, or where pictures are in a directory those of its files that are data.
void add_files_of(const NamedPath& data, std::vector<NamedPath>& files) {
  files.push_back(data);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data.path, error)) {
    const auto name = entry.path().filename().string();
    if (name.ends_with("-ubyte") || name.ends_with(".bin")) files.push_back({data.name, entry.path().string()});
  }
}

std::string quote(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& options, bool train) {
  auto& settings = options.settings;
  OptionAdder add(app);
  add_model_options(add, options, train);

  add.group("How");
  add.count("--steps", settings.steps, "Steps in all, those before a resume included");
  add.count("--batch", options.batch, "Examples per step (8; mlp: 1024; pictures: 64)", kMostBatch);
  add.count("--accumulate", settings.accumulate,
            "Micro-batches that the examples of a step are split into: activations of\none at a time, the gradient of "
            "all",
            kMostBatch);
  add.choice("--precision", settings.precision, {"float32", "bf16"},
             "Of forward and backward; bf16: matrix products in bfloat16 (autocast), which\nchanges losses; parameters "
             "stay in float32");
  add.add("--lr", settings.lr, "Learning rate of AdamW")->transform(range(1e-12, 1e3))->type_name("RATE");
  add.add("--warmup", settings.warmup, "Steps in which the learning rate rises to it")
      ->transform(range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N");
  add.choice("--schedule", settings.schedule, {"constant", "cosine"},
             "What the learning rate does then; cosine: falls, to almost 0 in the last step");
  add.add("--weight-decay", settings.weight_decay, "Of AdamW")->transform(range(0.0, 1e3))->type_name("RATE");
  add.add("--clip", settings.clip, "Scale gradients down to this norm, of all together; 0: never")
      ->transform(range(0.0, 1e12))
      ->type_name("NORM");
  add.add("--seed", settings.seed, "Decides parameters, dropout and the order of the data")
      ->transform(range(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->type_name("N");

  add.group("Memory");
  add.budget("--budget", settings.budget,
             "The most memory for tensors, parameters included: 2GiB, 1500MB;\n40% of the peak that activations have "
             "without remat; or device, all there is");
  add_planner_option(add, settings);
  if (train) {
    add.file("--plan", settings.plan,
             "Follow this plan, from --save-plan or `remat plan --out`, in steps that it is for\nand where it fits");
    add.file("--save-plan", settings.save_plan, "Write the plan that the last step followed here, as JSON");
    add.file("--save-run", settings.save_run, "Write the last step here, for `remat report`");
  }
  if (train) {
    add.flag("--optimizer-in-backward", settings.optimizer_in_backward,
             "Update each parameter as soon as its gradient is complete, and free the\ngradient: the same bits, and "
             "gradients are never all in memory");
    add.count("--ranks", settings.ranks, "Processes that train together, each on its part of every batch (c10d, Gloo)",
              kMostRanks);
    add.flag(
        "--shard", settings.shard,
        "With --ranks: each holds its part of parameters, gradients and optimizer\nstate, and the whole of one block "
        "at a time");
  }
  if (train) add.flag("--plain", settings.plain, "Without remat: keep everything, no budget");

  add.group("Files");
  if (train) {
    add.file("--checkpoint", settings.checkpoint, "Save the training here, to continue it later");
    add.add("--checkpoint-every", settings.checkpoint_every, "Save after every N steps; 0: only at the end")
        ->transform(range(int64_t{0}, int64_t{1} << 40))
        ->type_name("N");
    add.file("--save-hf", settings.save_model,
             "With --hf: write the trained model to this directory, as transformers loads it")
        ->type_name("DIR");
    add.flag("--resume", settings.resume, "Continue from the checkpoint; every loss has the bits it would have had");
  }
  add.file("--json", settings.json, "Write settings and every step's results here");
  add.file("--config", options.config,
           "Options as JSON, {\"layers\": 12, \"budget\": \"40%\"}; the command line comes first");
}

std::vector<std::string> config_arguments(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UsageError("[config] '" + path + "' is a directory; give a file");
  std::ifstream file(path);
  if (!file) throw UsageError("[config] cannot read '" + path + "'; check the path");
  std::set<std::string> names;
  std::string named_twice;
  const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& name) {
    if (event != nlohmann::json::parse_event_t::key || depth != 1) return true;
    if (!names.insert(name.get<std::string>()).second) named_twice = name.get<std::string>();
    return true;
  };
  const auto json = nlohmann::json::parse(file, on_event, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!json.is_object()) {
    throw UsageError("[config] '" + path + "' is not a JSON object, or has a number that is too large; write " +
                     "{\"layers\": 12, ...}");
  }
  if (!named_twice.empty()) {
    throw UsageError("[config] '" + named_twice + "' stands twice in '" + path + "'; keep one of them");
  }
  std::vector<std::string> arguments;
  for (const auto& [name, value] : json.items()) {
    if (name == "config") throw UsageError("[config] '" + path + "' names another config file; put its options here");
    if (value.is_structured() || value.is_null()) {
      throw UsageError("[config] '" + name + "' in '" + path + "' must be a string, a number, true or false; mend it");
    }
    arguments.push_back("--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return arguments;
}

TrainSettings finish_train_options(const TrainOptions& options, const std::vector<std::string>& arguments) {
  auto settings = options.settings;
  const bool sequences = predicts_every_token(settings.model);
  const int64_t usual_batch = sequences ? 8 : learns_pictures(settings) ? 64 : 1024;
  settings.batch = options.batch.value_or(usual_batch);
  settings.model.seq = options.seq.value_or(sequences ? 128 : 32);
  settings.command_line = "remat";
  for (const auto& argument : arguments) settings.command_line += " " + quote(argument);
  refuse_contradictions(options, settings);
  std::vector<NamedPath> read = {{"--config", options.config}, {"--plan", settings.plan}};
  add_files_of({"--data", settings.data}, read);
  add_files_of({"--eval", settings.held_out}, read);
  check_different_files(read, {{"--checkpoint", settings.checkpoint},
                               {"--save-plan", settings.save_plan},
                               {"--save-run", settings.save_run},
                               {"--json", settings.json}});
  return settings;
}

}  // namespace remat::cli
