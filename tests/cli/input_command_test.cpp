// What the command is given to read, and what it shows of that: devices, pipes, and characters that terminals obey.
#include <filesystem>

#include <sys/stat.h>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class InputCommand : public test::TrainingFixture {};

TEST_F(InputCommand, AConfigIsNoDeviceAndNotEndless) {
  expect_failure(train({"--config", "/dev/zero"}), 2, "[config] '/dev/zero' is a device, not a file; give");
  directory_.write("large.json", std::string((1 << 24) + 1, ' '));
  expect_failure(train({"--config", "large.json"}), 2, "[config] 'large.json' has 16.0 MiB (16777217 bytes), more than");
}

TEST_F(InputCommand, ANulEndsNoTextOfAConfig) {
  directory_.write("value.json", R"({"data": "text\u0000.gz"})");
  expect_failure(run({"train", "--config", "value.json"}), 2, "[config] 'data' in 'value.json' has a NUL character");
  directory_.write("name.json", R"({"data\u0000x": "text"})");
  expect_failure(run({"train", "--config", "name.json"}), 2, "'data\\x00x' in 'name.json' has a NUL character");
}

TEST_F(InputCommand, NamesWriteNoEscapesToATerminal) {
  const std::string name = "x\x1b[31m\n";
  const std::string shown = "x\\x1b[31m\\n";
  expect_failure(train({"--config", name}), 2, "cannot read '" + shown + "'");
  expect_failure(run({"train", "--data", name}), 1, "cannot read '" + shown + "'");
  expect_failure(run({"plan", name, "--budget", "50%"}), 1, "'" + shown + "'");
  for (const std::string label : {"a", "b"}) {
    std::filesystem::create_directories(directory_.path("pictures/" + label));
    directory_.write("pictures/" + label + "/" + name + ".png", "bad");
  }
  expect_failure(run({"train", "--task", "classify", "--model", "resnet20", "--data", "pictures"}), 1, shown + ".png");

  std::filesystem::copy(directory_.path("text"), directory_.path(name));
  const auto trained = train({"--data", name, "--eval", name, "--steps", "2", "--checkpoint", name + "c"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.out.find('\x1b'), std::string::npos) << trained.out;
  EXPECT_TRUE(holds(trained.out, shown + ", budget"));
  EXPECT_TRUE(holds(trained.out, shown + ": loss"));
}

TEST_F(InputCommand, PipesWithoutAWriterAreNotWaitedForForEver) {
  mkfifo(directory_.path("fifo").c_str(), 0600);
  expect_failure(run({"train", "--data", "fifo", "--steps", "1"}), 1,
                 "[data] 'fifo' is a pipe, and nobody has written");
  expect_failure(train({"--resume", "--checkpoint", "fifo"}), 1, "[checkpoint] 'fifo' is not a regular file");
  std::filesystem::create_directory(directory_.path("model"));
  mkfifo(directory_.path("model/config.json").c_str(), 0600);
  expect_failure(run({"train", "--data", "text", "--hf", "model"}), 1, "[pretrained] cannot read 'model/config.json'");
}

}  // namespace
}  // namespace remat::cli
