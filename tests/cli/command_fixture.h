// tests/cli/command_fixture.h -- the command in a directory of its own, and what is expected when it fails.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/run_command.h"
#include "cli/temporary_directory.h"

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
  Outcome run(const std::vector<std::string>& words, Setting setting = {}) const {
    setting.directory = directory_.path("");
    return run_command(words, setting);
  }

  bool exists(const std::string& name) const { return std::filesystem::exists(directory_.path(name)); }

  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(read_all(directory_.path(name))); }

  TemporaryDirectory directory_;
};

}  // namespace remat::test
