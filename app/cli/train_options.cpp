#include "cli/train_options.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <remat/budget.h>
#include <remat/planner.h>

#include "cli/different_files.h"
#include "cli/option_adder.h"
#include "cli/picture_collection.h"
#include "cli/train_contradictions.h"

namespace remat::cli {
namespace {

void add_model_options(OptionAdder& add, TrainOptions& options, bool train) {
  auto& model = options.settings.model;
  add.group("What to train");
  std::vector<std::string> tasks = {kNextToken, kMaskedTokens, kClassify};
  std::vector<std::string> models = {"gpt",      "mlp",      "resnet18",     "resnet20",
                                     "resnet50", "resnet56", "efficientnet", "vit"};
  if (train) {
    tasks.emplace_back(kReinforce);
    models.emplace_back("dqn");
  }
  add.choice("--task", model.task, tasks,
             "next-token: predict every next token of a text. mlm: predict tokens of a text that are hidden (--hf "
             "with a bert). classify: tell the label of every text (--hf with a bert) or picture (--model resnet18 "
             "and the like, or --hf with a vit or an efficientnet)" +
                 std::string(train ? ". rl: play a game, and learn from experience (--game)" : ""));
  add.file("--data", options.settings.data,
           "Text to learn from: its bytes, or with --hf the tokens of that tokenizer. A .jsonl file with --hf: "
           "conversations, "
           "{\"messages\": [...]}, or {\"prompt\": ..., \"completion\": ...}, of which answers are learned. To "
           "classify: labelled texts, a .csv "
           "file with a header or a .jsonl file, or a directory with a folder of PNG and JPEG files for each class, or "
           "with "
           "the files of MNIST, CIFAR-10 or CIFAR-100");
  if (train) {
    add.choice("--game", options.settings.game, {"cart-pole", "catch"},
               "What to play (rl). cart-pole: balance a pole, by 4 numbers. catch: a falling ball, by 24 x 24 pixels");
    add.file("--eval", options.settings.held_out,
             "A file like --data that is not learnt from: its loss before and after the training, and the share of "
             "labels told right");
  }
  add.add("--text-column", options.settings.columns.text, "Column of the texts (classify)")->type_name("NAME");
  add.add("--label-column", options.settings.columns.label, "Column of the labels (classify)")->type_name("NAME");
  add.file("--hf", model.directory,
           "Fine-tune the model in this directory of Hugging Face's form: config.json (gpt2, llama, mistral, qwen2, "
           "qwen3, phi3, gemma, gemma2 or gemma3_text; bert, roberta or distilbert for "
           "mlm and classify; vit and efficientnet for pictures), model.safetensors, tokenizer")
      ->type_name("DIR");
  add.choice(
      "--model", model.kind, models,
      "gpt: predict every next byte. mlp: predict the byte after a window. resnet18, resnet20, resnet50, resnet56, "
      "efficientnet (B0) and vit classify pictures" +
          std::string(train ? "; dqn plays (rl)" : ""));
  add.count("--image-size", options.image_size,
            "Pixels on each side of what these see (224; MNIST, CIFAR: 32): the shorter side is resized to it, and the "
            "middle cut out",
            kMostImageSize);
  add.count("--layers", model.layers, "Blocks (gpt, mlp, vit)", kMostLayers);
  add.count("--width", model.width, "Numbers per position (gpt, mlp, vit)", kMostWidth);
  add.count("--heads", model.heads, "Attention heads, a divisor of the width (gpt, vit)", kMostWidth);
  add.count("--seq", options.seq,
            "Tokens of context (128; mlp: 32); to classify, and in conversations: longer texts are cut", kMostSeq);
  add.add("--dropout", model.dropout, "Share of values zeroed in training (gpt, vit: 0.1, --hf: as config.json says)")
      ->transform(range(0.0, 0.999))
      ->type_name("P");
  add.count("--lora", options.lora,
            "Freeze the model's weights, and train beside them factors of this rank (LoRA), and the last layer of a "
            "classifier",
            kMostWidth);
  add.add("--lora-alpha", model.lora.alpha, "The factors' product counts alpha / rank times (the rank)")
      ->transform(range(1e-6, 1e6))
      ->type_name("ALPHA");
  add.add("--lora-targets", model.lora.targets,
          "Linear layers that get factors: names, or ends of them, as transformers has them with --hf, with a comma "
          "between; * for a part of one (queries and values of attention)")
      ->type_name("NAMES");
}

void add_planner_option(OptionAdder& add, TrainSettings& settings) {
  std::vector<std::string> names = {"online"};
  std::string text =
      "Who decides what to recompute. online: under pressure, step by step. The others plan all "
      "steps after the first:";
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == names.front()) continue;  // its plans are what it does anyway
    names.emplace_back(info.name);
    text += "\n" + names.back() + ": " + std::string(info.description);
  }
  add.choice("--planner", settings.planner, names, text);
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
  add.count("--batch", options.batch, "Examples per step (8; mlp: 1024; pictures: 64; rl: the game's)", kMostBatch);
  add.count("--accumulate", settings.accumulate,
            "Micro-batches that the examples of a step are split into: activations of one at a time, the gradient of "
            "all",
            kMostBatch);
  add.choice("--precision", settings.precision, {"float32", "bf16"},
             "Of forward and backward; bf16: matrix products in bfloat16 (autocast), which changes losses; parameters "
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
             "The most memory for tensors, parameters included: 2GiB, 1500MB; 40% of the peak that activations have "
             "without remat; " +
                 std::string(train ? "pressure, what the machine and the container have left before each step; " : "") +
                 "or device, all there is",
             /*show_default=*/true, /*follows=*/train);
  add_planner_option(add, settings);
  add.head(settings.head, /*compares=*/true);
  add.disk(settings.disk);
  if (train) {
    add.file("--plan", settings.plan,
             "Follow this plan, from --save-plan or `remat plan --out`, in steps that it is for and where it fits");
    add.file("--save-plan", settings.save_plan, "Write the plan that the last step followed here, as JSON");
    add.file("--save-run", settings.save_run, "Write the last step here, for `remat report`");
  }
  if (train) {
    add.flag("--optimizer-in-backward", settings.optimizer_in_backward,
             "Update each parameter as soon as its gradient is complete, and free the gradient: the same bits, and "
             "gradients are never all in memory. Not with --clip");
    add.add("--page-optimizer", settings.page_optimizer,
            "Keep AdamW's state in a file without a name in this directory, of so many bytes at most where they are "
            "given, and read it for one parameter at a time: the same bits. /scratch or 20GiB:/scratch")
        ->check(path_given())
        ->check(read_by([](const std::string& text) { place_of_state(text); }))
        ->type_name("[BYTES:]DIR");
    add.add("--page-gradients", settings.page_gradients,
            "Keep gradients in a file there, from backward to the update, also where micro-batches add up and --clip "
            "needs all of them: the same bits. /scratch or 20GiB:/scratch")
        ->check(path_given())
        ->check(read_by([](const std::string& text) { place_of_state(text); }))
        ->type_name("[BYTES:]DIR");
    add.file("--page-weights", settings.model.page_weights,
             "With --lora: keep the frozen weights in files without names in this directory, which are mapped: what "
             "memory runs short of is read again, and no budget counts them. The same bits")
        ->type_name("DIR");
    add.count("--ranks", settings.ranks,
              "Processes that train together, each on its part of every batch (c10d, Gloo); under torchrun, which says "
              "how many, leave it out",
              kMostRanks);
    add.flag(
        "--shard", settings.shard,
        "With --ranks or torchrun: each process holds its part of parameters, gradients and optimizer state, and the "
        "whole of one block at a time");
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
    add.file("--save-adapter", settings.save_adapter,
             "With --lora and --hf: write the factors to this directory, as peft loads them")
        ->type_name("DIR");
    add.flag(
        "--resume", settings.resume,
        "Continue from the checkpoint; every loss has the bits it would have had. With as many --ranks as saved it, "
        "all with --shard or none");
  }
  add.file("--json", settings.json, "Write settings and every step's results here");
  add.file("--config", options.config,
           "Options as JSON, {\"layers\": 12, \"budget\": \"40%\"}; the command line comes first");
}

TrainSettings finish_train_options(const TrainOptions& options, const std::vector<std::string>& arguments) {
  auto settings = options.settings;
  const bool sequences = predicts_every_token(settings.model);
  const int64_t usual_batch = sequences ? 8 : learns_pictures(settings) ? 64 : 1024;
  const bool plays = settings.model.task == kReinforce;
  settings.model.lora.rank = options.lora.value_or(0);
  settings.batch = options.batch.value_or(plays ? 0 : usual_batch);
  if (plays && !options.on_command_line.contains("--model") && !options.in_config.contains("--model")) {
    settings.model.kind = "dqn";
  }
  settings.model.seq = options.seq.value_or(sequences ? 128 : 32);
  if (learns_pictures(settings)) {
    settings.model.image_size = options.image_size.value_or(holds_collection(settings.data) ? 0 : kUsualImageSize);
  }
  settings.command_line = "remat";
  for (const auto& argument : arguments) settings.command_line += " " + quote(argument);
  refuse_contradictions(options, settings);
  std::vector<NamedPath> read = {{"--config", options.config}, {"--plan", settings.plan}};
  add_files_of({"--data", settings.data}, read);
  add_files_of({"--eval", settings.held_out}, read);
  const std::vector<NamedPath> written = {{"--checkpoint", settings.checkpoint},
                                          {"--save-plan", settings.save_plan},
                                          {"--save-run", settings.save_run},
                                          {"--json", settings.json}};
  check_different_files(read, written);
  if (settings.model.task == kClassify) check_no_picture(written);
  if (!settings.save_model.empty() && !settings.save_adapter.empty()) {
    const auto as_directory = [](const std::filesystem::path& path) { return (path / "").string(); };
    check_different_files({{"--save-hf", as_directory(settings.save_model)}},
                          {{"--save-adapter", as_directory(settings.save_adapter)}});
  }
  return settings;
}

}  // namespace remat::cli
