#include "cli/options.h"

#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "cli/usage_error.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

using test::usage_error_of;

TrainSettings settings_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"train", "--data", "text"});
  return parse_options(arguments).settings;
}

TEST(OptionsTest, DefaultsDependOnTheModel) {
  const auto gpt = settings_of({});
  EXPECT_EQ(gpt.model.kind, "gpt");
  EXPECT_EQ(gpt.batch, 8);
  EXPECT_EQ(gpt.model.seq, 128);
  EXPECT_EQ(gpt.budget, "device");
  const auto mlp = settings_of({"--model", "mlp"});
  EXPECT_EQ(mlp.batch, 1024);
  EXPECT_EQ(mlp.model.seq, 32);
}

TEST(OptionsTest, EveryOptionArrives) {
  const auto settings = settings_of({"--model",   "gpt",
                                     "--layers",  "3",
                                     "--width",   "48",
                                     "--heads",   "6",
                                     "--seq",     "20",
                                     "--dropout", "0.25",
                                     "--steps",   "7",
                                     "--batch",   "5",
                                     "--lr",      "0.002",
                                     "--seed",    "9",
                                     "--budget",  "1.5GiB",
                                     "--planner", "online",
                                     "--json",    "j",
                                     "--resume",  "--checkpoint",
                                     "c",         "--checkpoint-every",
                                     "2"});
  EXPECT_EQ(decisive(settings).dump(),
            R"({"batch":5,"dropout":0.25,"heads":6,"layers":3,"lr":0.002,"model":"gpt","seed":9,"seq":20,"width":48})");
  EXPECT_EQ(settings.steps, 7);
  EXPECT_EQ(settings.budget, "1.5GiB");
  EXPECT_EQ(settings.planner, "online");
  EXPECT_EQ(settings.json, "j");
  EXPECT_EQ(settings.checkpoint, "c");
  EXPECT_EQ(settings.checkpoint_every, 2);
  EXPECT_FALSE(settings.plain);
  EXPECT_TRUE(settings.resume);
  EXPECT_TRUE(settings_of({"--plain"}).plain);
}

TEST(OptionsTest, ThePlannerIsOnlineOrAnyInTheList) {
  EXPECT_EQ(settings_of({}).planner, "auto");
  EXPECT_EQ(settings_of({"--planner", "online"}).planner, "online");
  for (const auto& planner : list_planners()) {
    EXPECT_EQ(settings_of({"--planner", std::string(planner.name)}).planner, planner.name);
    EXPECT_EQ(parse_options({"compare", "--data", "t", "--planner", std::string(planner.name)}).settings.planner,
              planner.name);
  }
  EXPECT_TRUE(test::holds(usage_error_of({"train", "--data", "t", "--planner", "magic"}), "online, auto, "));
}

TEST(OptionsTest, NonsenseIsAUsageErrorThatNamesIt) {
  const auto error = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", "text"});
    return usage_error_of(more);
  };
  using test::holds;
  EXPECT_TRUE(holds(error({"--layers", "0"}), "[options] --layers: "));
  EXPECT_TRUE(holds(error({"--layers", "many"}), "--layers"));
  EXPECT_TRUE(holds(error({"--steps", "-1"}), "--steps"));
  EXPECT_TRUE(holds(error({"--dropout", "1"}), "--dropout"));
  EXPECT_TRUE(holds(error({"--dropout", "nan"}), "--dropout: 'nan' is not a number from 0 to 0.999"));
  for (const auto* rate : {"nan", "inf", "-inf", "0", "1e-3x"}) {
    EXPECT_TRUE(holds(error({"--lr", rate}), std::string("--lr: '") + rate + "' is not a number from 1e-12 to 1000"));
  }
  for (const auto* seed : {"-1", "18446744073709551616", "1.5", ""}) {
    EXPECT_TRUE(holds(error({"--seed", seed}), "--seed: '" + std::string(seed) +
                                                   "' is not a number from 0 to 18446744073709551615; see: remat"));
  }
  EXPECT_TRUE(holds(error({"--steps", "18446744073709551617"}), "--steps"));
  for (const auto& [option, most] : std::map<std::string, std::string>{{"--layers", "100000"},
                                                                       {"--width", "65536"},
                                                                       {"--heads", "65536"},
                                                                       {"--seq", "1048576"},
                                                                       {"--batch", "1048576"},
                                                                       {"--steps", "1099511627776"}}) {
    EXPECT_TRUE(holds(error({option, most + "0"}), option + ": '" + most + "0' is not a number from 1 to " + most));
  }
  EXPECT_TRUE(holds(error({"--model", "rnn"}), "--model"));
  EXPECT_TRUE(holds(error({"--planner", "magic"}), "--planner"));
  EXPECT_TRUE(holds(error({"--budget", "lots"}), "lots"));
  EXPECT_TRUE(holds(error({"--budget", "0"}), "["));
  EXPECT_TRUE(holds(error({"--budget", "140%"}), "140"));
  EXPECT_TRUE(holds(error({"--nonsense"}), "--nonsense"));
  EXPECT_TRUE(holds(error({"--width", "50", "--heads", "8"}), "--width 50 is not a multiple of --heads 8"));
  EXPECT_TRUE(holds(error({"--resume"}), "name it with --checkpoint"));
  EXPECT_TRUE(holds(usage_error_of({"train"}), "--data is missing"));
  EXPECT_TRUE(holds(usage_error_of({}), "subcommand"));
  EXPECT_TRUE(holds(usage_error_of({"compare", "--data", "text", "--plain"}), "--plain"));
}

TEST(OptionsTest, TheLargestSeedIsASeed) {
  EXPECT_EQ(settings_of({"--seed", "18446744073709551615"}).seed, 18446744073709551615u);
}

TEST(OptionsTest, NumbersAreDecimalAlsoWithLeadingZeros) {
  const auto settings = settings_of({"--seed", "010", "--steps", "0012", "--batch", "08", "--checkpoint", "c",
                                     "--checkpoint-every", "020", "--lr", "0010"});
  EXPECT_EQ(settings.seed, 10u);
  EXPECT_EQ(settings.steps, 12);
  EXPECT_EQ(settings.batch, 8);
  EXPECT_EQ(settings.checkpoint_every, 20);
  EXPECT_EQ(settings.lr, 10);
  EXPECT_EQ(parse_options({"record", "mlp", "--out", "g", "--batch", "010"}).record.batch, 10);
}

TEST(OptionsTest, NoFileIsWrittenTwiceOrOverWhatIsRead) {
  const test::TemporaryDirectory directory;
  const auto data = directory.write("text", "some text");
  const auto config = directory.write("config", "{\"steps\": 3}");
  const auto same = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"train", "--data", data};
    all.insert(all.end(), words.begin(), words.end());
    return usage_error_of(all);
  };
  for (const char* option : {"--json", "--save-plan", "--checkpoint"}) {
    EXPECT_TRUE(
        test::holds(same({option, data}), std::string("[options] --data and ") + option + " are the same file"));
    EXPECT_TRUE(test::holds(same({"--config", config, option, config}),
                            std::string("--config and ") + option + " are the same file"));
  }
  EXPECT_TRUE(
      test::holds(same({"--checkpoint", "c", "--json", "./c"}), "--checkpoint and --json are the same file './c'"));
  EXPECT_TRUE(
      test::holds(same({"--checkpoint", "c", "--resume", "--save-plan", "c"}), "--checkpoint and --save-plan are"));
  EXPECT_TRUE(test::holds(same({"--plan", "p", "--json", "p"}), "--plan and --json are the same file"));
  EXPECT_TRUE(
      test::holds(usage_error_of({"compare", "--data", data, "--json", data}), "--data and --json are the same"));
  EXPECT_EQ(same({"--json", "/dev/null", "--save-plan", "/dev/null"}), "(no usage error)");
}

TEST(OptionsTest, AFileWithoutANameIsAUsageError) {
  for (const auto* option : {"--data", "--json", "--checkpoint", "--config"}) {
    EXPECT_TRUE(test::holds(usage_error_of({"train", "--data", "text", option, ""}),
                            "[options] " + std::string(option) + ": the path is empty; see: remat train --help"));
  }
  EXPECT_TRUE(test::holds(usage_error_of({"record", "mlp", "--out", ""}), "--out: the path is empty"));
  for (const auto* option : {"--out", "--curve", "--json"}) {
    EXPECT_TRUE(test::holds(usage_error_of({"plan", "g", option, ""}), "the path is empty")) << option;
  }
  EXPECT_TRUE(test::holds(usage_error_of({"plan", ""}), "GRAPH: the path is empty"));
}

TEST(OptionsTest, HelpAndVersionArePrinted) {
  EXPECT_EQ(parse_options({"--version"}).text.rfind("remat ", 0), 0u);
  const auto help = parse_options({"train", "--help"}).text;
  for (const auto* option : {"--model", "--data", "--budget", "--steps", "--resume", "--json", "--config", "--plain"}) {
    EXPECT_TRUE(test::holds(help, option));
  }
  EXPECT_TRUE(test::holds(parse_options({"--help"}).text, "compare"));
}

TEST(OptionsTest, HelpFitsEveryTerminal) {
  for (const auto* words : {"--help", "train --help", "compare --help", "record --help", "plan --help", "fit --help",
                            "sweep --help", "report --help"}) {
    std::vector<std::string> arguments;
    std::istringstream all(words);
    for (std::string word; std::getline(all, word, ' ');) arguments.push_back(word);
    std::istringstream lines(parse_options(arguments).text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << words << "\n" << line;
  }
}

TEST(OptionsTest, AConfigFileStandsForOptionsAndTheCommandLineComesFirst) {
  const test::TemporaryDirectory directory;
  const auto config = directory.write("run.json", R"({"layers": 3, "budget": "40%", "resume": true, "steps": 9,
                                                   "checkpoint": "c"})");
  const auto settings = settings_of({"--config", config, "--steps", "11"});
  EXPECT_EQ(settings.model.layers, 3);
  EXPECT_EQ(settings.budget, "40%");
  EXPECT_TRUE(settings.resume);
  EXPECT_EQ(settings.steps, 11);
  EXPECT_EQ(settings_of({"--steps", "11", "--config", config}).steps, 11);
}

TEST(OptionsTest, AConfigFileIsCheckedLikeTheCommandLine) {
  const test::TemporaryDirectory directory;
  const auto error = [&](const std::string& text) {
    return usage_error_of({"train", "--data", "text", "--config", directory.write("run.json", text)});
  };
  const auto file = directory.path("run.json");
  EXPECT_TRUE(test::holds(error(R"({"layrs": 3})"),
                          "[config] '" + file + "': there is no option '--layrs'; did you mean --layers?"));
  EXPECT_TRUE(test::holds(error(R"({"layers": 0})"), "[config] '" + file + "': --layers: '0'"));
  EXPECT_TRUE(test::holds(error(R"({"budget": "40"})"), "[config] '" + file + "': --budget: \"40\" would be"));
  EXPECT_TRUE(test::holds(error(R"({"width": 30})"), "[config] with '" + file + "', --width 30 is not a multiple"));
  EXPECT_TRUE(test::holds(error(R"({"config": "other.json"})"), "names another config file"));
  EXPECT_TRUE(test::holds(error(R"({"layers": [3]})"), "'layers' in"));
  EXPECT_TRUE(test::holds(error(R"({"layers": 3, "heads": 4, "layers": 2})"), "'layers' stands twice in '" + file));
  EXPECT_TRUE(test::holds(error("{\"layers\":\n"), "' line 2 is not JSON; write {"));
  EXPECT_TRUE(test::holds(error("{\"layers\": 2,\n\"budget\": 40%,\n\"steps\": 3}"), "' line 2 is not JSON"));
  EXPECT_TRUE(test::holds(error(""), "' line 1 is not JSON"));
  EXPECT_TRUE(test::holds(error(R"({"lr": 1e999})"), "has a number that is too large"));
  EXPECT_TRUE(test::holds(error("[1]"), "is not a JSON object"));
  EXPECT_TRUE(test::holds(usage_error_of({"train", "--data", "t", "--config", "/no/such"}), "cannot read '/no/such'"));
}

TEST(OptionsTest, MisspeltWordsGetASuggestion) {
  using test::holds;
  EXPECT_TRUE(holds(usage_error_of({"tran", "--data", "t"}),
                    "[options] there is no subcommand 'tran'; did you mean train? see: remat --help"));
  EXPECT_TRUE(holds(usage_error_of({"evaluate"}), "[options] there is no subcommand 'evaluate'; see: remat --help"));
  const auto train = [](const std::string& option) { return usage_error_of({"train", "--data", "t", option, "3"}); };
  EXPECT_TRUE(holds(train("--layrs"), "there is no option '--layrs'; did you mean --layers? see: remat train --help"));
  EXPECT_TRUE(holds(train("--bugdet=40%"), "there is no option '--bugdet'; did you mean --budget?"));
  EXPECT_TRUE(holds(train("--verbose"), "there is no option '--verbose'; see: remat train --help"));
  EXPECT_TRUE(holds(train("more"), "'more' was not expected"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "--uot", "g"}), "did you mean --out?"))
      << "before the one that is missing";
  EXPECT_TRUE(holds(usage_error_of({"record", "rsnet", "--out", "g"}), "did you mean resnet?"));
  EXPECT_TRUE(holds(usage_error_of({"train", "--data", "t", "--model", "gtp"}),
                    "--model: 'gtp' is none of gpt, mlp, resnet18, resnet20, resnet50, resnet56, efficientnet, vit, "
                    "dqn; did you mean gpt?"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--planner", "atuo"}), "did you mean auto?"));
}

TEST(OptionsTest, BudgetsAreEchoedAndQuestioned) {
  using test::holds;
  EXPECT_TRUE(holds(usage_error_of({"train", "--data", "t", "--budget", "40"}),
                    "[options] --budget: \"40\" would be 40 bytes, too few for any step: did you mean \"40%\"?"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--budget", "-3%"}), "--budget: \"-3%\" is not above 0%"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "--out", "g", "--budget", "x"}), "--budget: \"x\" does not"));
  EXPECT_EQ(settings_of({"--budget", "1e9"}).budget, "1e9");
  EXPECT_EQ(settings_of({"--budget", "pressure"}).budget, "pressure");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"plan", "g"}, {"compare", "--data", "t"}, {"record", "mlp", "--out", "g"}, {"fit", "mlp"}}) {
    auto with = words;
    with.insert(with.end(), {"--budget", "pressure"});
    EXPECT_TRUE(holds(usage_error_of(with), "--budget: \"pressure\" is known while a training runs alone")) << words[0];
  }
  EXPECT_TRUE(holds(usage_error_of({"train", "--data", "t", "--ranks", "2", "--budget", "pressure"}),
                    "[options] --budget pressure is for one process"));
}

TEST(OptionsTest, OptionsWithoutEffectAreErrors) {
  using test::holds;
  const auto train = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", "t"});
    return usage_error_of(more);
  };
  EXPECT_TRUE(holds(train({"--model", "mlp", "--dropout", "0"}), "[options] --dropout has no effect with --model mlp"));
  EXPECT_TRUE(holds(train({"--model", "mlp", "--heads", "8"}),
                    "[options] --heads has no effect with --model mlp; leave one of them out"));
  EXPECT_TRUE(holds(train({"--plain", "--budget", "40%"}), "[options] --budget has no effect with --plain"));
  EXPECT_TRUE(holds(train({"--plain", "--budget", "device"}), "--budget has no effect with --plain"));
  EXPECT_TRUE(holds(train({"--plain", "--planner", "auto"}), "--planner has no effect with --plain"));
  EXPECT_TRUE(holds(train({"--plain", "--plan", "p"}), "--plan has no effect with --plain"));
  EXPECT_TRUE(holds(train({"--plain", "--save-plan", "p"}), "--save-plan has no effect with --plain"));
  EXPECT_TRUE(
      holds(train({"--planner", "online", "--save-plan", "p"}), "--save-plan has no effect with --planner online"));
  EXPECT_EQ(train({"--planner", "online", "--save-plan", "p", "--plan", "q"}), "(no usage error)");
  EXPECT_EQ(train({"--optimizer-in-backward", "--ranks", "2"}), "(no usage error)");
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--refine", "--planner", "rotor"}),
                    "[options] --refine has no effect with --planner rotor"));
  EXPECT_EQ(usage_error_of({"plan", "g", "--refine", "--all", "--planner", "rotor"}), "(no usage error)");
}

TEST(OptionsTest, ANormOfAllGradientsIsRefusedWhereTheyAreNeverAllThere) {
  EXPECT_TRUE(settings_of({"--optimizer-in-backward", "--clip", "0"}).optimizer_in_backward);
  const test::TemporaryDirectory directory;
  const auto config = directory.write("run.json", R"({"clip": 1})");
  const std::vector<std::vector<std::string>> clips = {{"--clip", "1"}, {"--config", config}};
  for (const auto& clip : clips) {
    std::vector<std::string> words = {"train", "--data", "t", "--optimizer-in-backward"};
    words.insert(words.end(), clip.begin(), clip.end());
    EXPECT_TRUE(test::holds(usage_error_of(words), "--clip needs all gradients at once"));
  }
}

// A file for several runs: what one of them has no use for may stay in it.
TEST(OptionsTest, TheCommandLineMayMakeAnOptionOfTheConfigFileIdle) {
  const test::TemporaryDirectory directory;
  const auto config = directory.write("run.json", R"({"heads": 4, "budget": "40%"})");
  EXPECT_TRUE(settings_of({"--config", config, "--plain"}).plain);
  EXPECT_EQ(settings_of({"--config", config, "--model", "mlp"}).model.kind, "mlp");
  const auto usage_error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", "t", "--config", config});
    return usage_error_of(more);
  };
  EXPECT_TRUE(test::holds(usage_error({"--plain", "--budget", "50%"}), "--budget has no effect with --plain"));
  directory.write("run.json", R"({"heads": 4, "model": "mlp"})");
  EXPECT_TRUE(test::holds(usage_error({}), "[config] with '" + config + "', --heads has no effect with --model mlp"));
}

TEST(OptionsTest, TheCommandLineIsKeptAsAShellWouldReadIt) {
  EXPECT_EQ(settings_of({"--json", "it's here"}).command_line, R"(remat train --data text --json 'it'\''s here')");
}

TEST(SettingsTest, DifferencesNameBothSides) {
  EXPECT_EQ(differences({{"a", 1}, {"b", 2}}, {{"a", 1}, {"b", 2}}), "");
  EXPECT_EQ(differences({{"layers", 4}, {"seed", 1}}, {{"layers", 8}, {"seed", 1}}), "layers 4 (here 8)");
  EXPECT_EQ(differences({{"heads", 4}}, {{"width", 8}}), "heads 4 (here left out), width left out (here 8)");
}

}  // namespace
}  // namespace remat::cli
