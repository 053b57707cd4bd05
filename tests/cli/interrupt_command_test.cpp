// Signals that arrive while the command waits for something that may never come.
#include <sys/stat.h>

#include <remat/graph.h>

#include "cli/command_fixture.h"
#include "plan/sample_graph.h"

namespace remat::cli {
namespace {

using test::Outcome;
using Words = std::vector<std::string>;

class InterruptCommandTest : public test::CommandFixture {
 protected:
  InterruptCommandTest() {
    directory_.write("g.json", to_json(chain_graph(10)));
    mkfifo(directory_.path("fifo").c_str(), 0600);
  }

  // The first signal is enough. A machine so slow that the command has not begun to catch signals shows 1000 + signal.
  void expect_end(const Words& words, int signal) const {
    const auto outcome = run(words, {.signal = signal, .signal_seconds = 2});
    EXPECT_TRUE(outcome.code == 128 + signal || outcome.code == 1000 + signal) << outcome.code << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
};

TEST_F(InterruptCommandTest, EndsTheWaitForAPipeThatNobodyWrites) {
  expect_end({"plan", "fifo"}, SIGTERM);
  expect_end({"train", "--data", "fifo"}, SIGINT);
}

TEST_F(InterruptCommandTest, EndsTheWaitForAPipeThatNobodyReads) {
  expect_end({"plan", "g.json", "--out", "fifo"}, SIGTERM);
}

TEST_F(InterruptCommandTest, APipeAtATemporaryPlaceIsNotTouched) {
  mkfifo(directory_.path("p.json.part").c_str(), 0600);
  EXPECT_EQ(run({"plan", "g.json", "--out", "p.json"}, {.signal = SIGTERM, .signal_seconds = 20}).code, 0);
  EXPECT_TRUE(std::filesystem::is_fifo(directory_.path("p.json.part")));
}

}  // namespace
}  // namespace remat::cli
