// tests/cli/command_fixture.h -- the command in a directory of its own, and what is expected when it fails.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/run_command.h"
#include "support/temporary_directory.h"

namespace remat::test {

inline ::testing::AssertionResult holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the text is\n" << text << "\nand does not hold\n" << part;
}

// One line `remat: [where] what happened; what to do`, nothing else.
inline void expect_failure(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code);
  EXPECT_TRUE(holds(outcome.err, part));
  EXPECT_EQ(outcome.err.rfind("remat: [", 0), 0u) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

class CommandFixture : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  static Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Outcome run(const std::vector<std::string>& words, Setting setting = {}) const {
    setting.directory = directory_.path("");
    return run_command(words, setting);
  }

  bool exists(const std::string& name) const { return std::filesystem::exists(directory_.path(name)); }

  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(read_all(directory_.path(name))); }

  TemporaryDirectory directory_;
};

// With a file "text", and a GPT so small that a step takes milliseconds.
class TrainingFixture : public CommandFixture {
 protected:
  TrainingFixture() {
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += "the " + std::to_string(i * i % 997) + " of ";
    directory_.write("text", text);
  }

  Outcome train(const Words& more, const Setting& setting = {}) const {
    return run(with_model("train", more), setting);
  }

  static Words with_model(const std::string& subcommand, const Words& more) {
    Words words = {subcommand, "--data", "text", "--layers", "2", "--width", "32", "--seq", "32", "--batch", "16"};
    if (std::ranges::find(more, "mlp") == more.end()) words.insert(words.end(), {"--heads", "2"});
    return joined(std::move(words), more);
  }
};

}  // namespace remat::test
