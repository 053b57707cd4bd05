#include "cli/options.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include <CLI/CLI.hpp>

#include <remat/budget.h>

namespace remat::cli {
namespace {

constexpr const char* kFooter = R"(
The text can be any file; `scripts/kjv FILE` writes the King James Bible (1611, public domain) from Debian's packages
bible-kjv and bible-kjv-text.

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the budget is too small, 128 + signal when interrupted (the step in
progress is finished and a checkpoint saved).
)";

// What the user may leave out and whose default depends on the model.
struct Unset {
  std::optional<int64_t> batch, seq;
};

// CLI11's check without the limits in the help page, where they would be noise.
template <class Number>
CLI::Validator range(Number least, Number most) {
  return CLI::Range(least, most).description("");
}

// Adds options to one subcommand, in groups of the help page.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}

  void group(const std::string& name) { group_ = name; }

  template <class Value>
  CLI::Option* add(const std::string& name, Value& value, const std::string& text) {
    return app_.add_option(name, value, text)->capture_default_str()->group(group_);
  }
  template <class Value>
  void count(const std::string& name, Value& value, const std::string& text) {
    add(name, value, text)->check(range(int64_t{1}, int64_t{1} << 40))->type_name("N");
  }
  void file(const std::string& name, std::string& path, const std::string& text) {
    app_.add_option(name, path, text)->type_name("FILE")->group(group_);
  }
  void flag(const std::string& name, bool& value, const std::string& text) {
    app_.add_flag(name, value, text)->group(group_);
  }

 private:
  CLI::App& app_;
  std::string group_;
};

void add_options(Options options, TrainSettings& settings, Unset& unset, std::string& config, bool train) {
  auto& model = settings.model;
  options.group("What to train");
  options.file("--data", settings.data, "Text to learn from, read as bytes");
  options.add("--model", model.kind, "gpt: predict every next byte. mlp: predict the byte after a window")
      ->check(CLI::IsMember({"gpt", "mlp"}))
      ->type_name("NAME");
  options.count("--layers", model.layers, "Blocks");
  options.count("--width", model.width, "Numbers per position");
  options.count("--heads", model.heads, "Attention heads, a divisor of the width (gpt)");
  options.count("--seq", unset.seq, "Bytes of context (gpt: 128, mlp: 32)");
  options.add("--dropout", model.dropout, "Share of values zeroed in training (gpt)")
      ->check(range(0.0, 0.999))
      ->type_name("P");

  options.group("How");
  options.count("--steps", settings.steps, "Steps in all, those before a resume included");
  options.count("--batch", unset.batch, "Examples per step (gpt: 8, mlp: 1024)");
  options.add("--lr", settings.lr, "Learning rate of AdamW")->check(range(1e-12, 1e3))->type_name("RATE");
  options.add("--seed", settings.seed, "Decides parameters, dropout and the order of the data")->type_name("N");

  options.group("Memory");
  options
      .add("--budget", settings.budget,
           "The most memory for tensors, parameters included: 2GiB, 1500MB;\n40% of the peak that activations have "
           "without remat; or device, all there is")
      ->type_name("BYTES");
  options.add("--planner", settings.planner, "Who decides what to recompute. online: under pressure, step by step")
      ->check(CLI::IsMember({"online"}))
      ->type_name("NAME");
  if (train) options.flag("--plain", settings.plain, "Without remat: keep everything, no budget");

  options.group("Files");
  if (train) {
    options.file("--checkpoint", settings.checkpoint, "Save the training here, to continue it later");
    options.add("--checkpoint-every", settings.checkpoint_every, "Save after every N steps; 0: only at the end")
        ->check(range(int64_t{0}, int64_t{1} << 40))
        ->type_name("N");
    options.flag("--resume", settings.resume,
                 "Continue from the checkpoint; every loss has the bits it would have had");
  }
  options.file("--json", settings.json, "Write settings and every step's results here");
  options.file("--config", config,
               "Options as JSON, {\"layers\": 12, \"budget\": \"40%\"}; the command line comes first");
}

// {"layers": 12, "plain": true} as "--layers=12 --plain=true": the same checks and messages as on the command line.
std::vector<std::string> arguments_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError("[config] cannot read '" + path + "'; check the path");
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!json.is_object()) throw UsageError("[config] '" + path + "' is not a JSON object; write {\"layers\": 12, ...}");
  std::vector<std::string> arguments;
  for (const auto& [name, value] : json.items()) {
    if (value.is_structured() || value.is_null()) {
      throw UsageError("[config] '" + name + "' in '" + path + "' must be a string, a number, true or false; mend it");
    }
    arguments.push_back("--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return arguments;
}

std::string quote(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void finish(Command& command, const Unset& unset, const std::vector<std::string>& arguments) {
  auto& settings = command.settings;
  const bool gpt = settings.model.kind == "gpt";
  settings.batch = unset.batch.value_or(gpt ? 8 : 1024);
  settings.model.seq = unset.seq.value_or(gpt ? 128 : 32);
  settings.command_line = "remat";
  for (const auto& argument : arguments) settings.command_line += " " + quote(argument);
  if (settings.data.empty()) throw UsageError("[options] --data is missing; name a text file");
  if (gpt && settings.model.width % settings.model.heads != 0) {
    throw UsageError("[options] --width " + std::to_string(settings.model.width) + " is not a multiple of --heads " +
                     std::to_string(settings.model.heads) + "; change one of them");
  }
  if (settings.checkpoint.empty() && (settings.resume || settings.checkpoint_every > 0)) {
    throw UsageError("[options] --resume and --checkpoint-every need a file; name it with --checkpoint");
  }
  try {
    Budget::parse(settings.budget);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

Command parse_options(const std::vector<std::string>& arguments) {
  Command command;
  Unset unset;
  std::string config;
  CLI::App app(
      "Trains within a byte budget: what does not fit is dropped and recomputed, and every bit stays the same.",
      "remat");
  app.set_version_flag("--version", "remat " REMAT_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer(kFooter);
  auto* train = app.add_subcommand("train", "Train a model on a text, within a budget");
  auto* compare =
      app.add_subcommand("compare", "Train twice, plain and within a budget, and compare time, memory and bits");
  for (auto* subcommand : {train, compare}) {
    subcommand->footer(kFooter);
    add_options(Options(*subcommand), command.settings, unset, config, /*train=*/subcommand == train);
  }

  const auto parse = [&](std::vector<std::string> words) {
    std::ranges::reverse(words);  // CLI11 takes them from the back
    app.parse(std::move(words));
  };
  try {
    parse(arguments);
    if (!config.empty()) {
      // The file's options first: where both name one, the last counts.
      auto words = arguments_of(config);
      const auto subcommand = std::ranges::find_if(arguments, [](const auto& word) { return word[0] != '-'; });
      words.insert(words.begin(), *subcommand);
      words.insert(words.end(), arguments.begin(), subcommand);
      words.insert(words.end(), subcommand + 1, arguments.end());
      parse(std::move(words));
    }
  } catch (const CLI::CallForVersion& version) {
    command.text = std::string(version.what()) + "\n";
    return command;
  } catch (const CLI::CallForHelp&) {
    command.text = app.help();
    return command;
  } catch (const CLI::ParseError& error) {
    const auto* parsed = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
    throw UsageError("[options] " + std::string(error.what()) + "; see: remat " +
                     (parsed != nullptr ? parsed->get_name() + " " : "") + "--help");
  }
  command.kind = train->parsed() ? Command::Kind::kTrain : Command::Kind::kCompare;
  finish(command, unset, arguments);
  return command;
}

}  // namespace remat::cli
