// Where results go, as a user's shell sends them.
#include <cstdlib>

#include <remat/graph.h>

#include "cli/command_fixture.h"
#include "plan/sample_graph.h"

namespace remat::cli {
namespace {

using test::holds;
using test::read_all;

class OutputCommandTest : public test::CommandFixture {
 protected:
  OutputCommandTest() { directory_.write("g.json", to_json(chain_graph(10))); }

  // The exit code of a line of bash, in which $remat is the command. Standard error goes into the file "err".
  int shell(const std::string& line) const {
    const auto script = directory_.write("script", "remat=" REMAT_COMMAND "\n" + line + "\n");
    const auto command = "cd " + directory_.path("") + " && bash " + script + " 2> err";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string text(const std::string& name) const { return read_all(directory_.path(name)); }
};

TEST_F(OutputCommandTest, StandardOutputOnAFullDiskIsAFailure) {
  directory_.write("text", std::string(2000, 'x'));
  for (const auto* words : {"--help", "plan --help", "plan g.json", "record mlp --batch 1 --steps 1 --out r.json",
                            "train --data text --model mlp --layers 1 --width 8 --batch 1 --steps 2"}) {
    EXPECT_EQ(shell("$remat " + std::string(words) + " > /dev/full"), 1) << words;
    EXPECT_EQ(text("err").rfind("remat: [output] cannot write to standard output (No space left on device); free", 0),
              0u)
        << words << text("err");
  }
  EXPECT_TRUE(exists("r.json"));
}

TEST_F(OutputCommandTest, StandardOutputThatIsClosedIsAFailure) {
  EXPECT_EQ(shell("$remat plan g.json >&-"), 1);
  EXPECT_TRUE(holds(text("err"), "remat: [output] cannot write to standard output (Bad file descriptor)"));
}

TEST_F(OutputCommandTest, AClosedPipeIsNoFailure) {
  for (const auto* words : {"--help", "plan g.json"}) {
    EXPECT_EQ(shell("{ sleep 0.2; $remat " + std::string(words) + "; echo $? > code; } | true"), 0);
    EXPECT_EQ(text("code"), "141\n") << words;
    EXPECT_EQ(text("err"), "");
  }
}

// By a link of its own: where this fails, the machine's /dev/stdout is not what gets replaced.
TEST_F(OutputCommandTest, StandardOutputInAFileIsWrittenInto) {
  EXPECT_EQ(shell("ln -s /proc/self/fd/1 stdout; { echo before; $remat plan g.json --json stdout; echo after; } > all"),
            0)
      << text("err");
  const auto all = text("all");
  EXPECT_TRUE(all.starts_with("before\ng.json: 10 operators")) << all;
  EXPECT_TRUE(holds(all, "\n{\n \"baseline_bytes\": "));
  EXPECT_TRUE(all.ends_with("\n}\nafter\n")) << all;
}

TEST_F(OutputCommandTest, AProcessSubstitutionIsAFile) {
  EXPECT_EQ(shell("$remat plan <(cat g.json) --out >(cat > p.json) > all\ncode=$?; wait $!; exit $code"), 0);
  EXPECT_EQ(json("p.json").at("format"), "remat-plan");
}

TEST_F(OutputCommandTest, TwoLinksToOneFileAreOneFile) {
  EXPECT_EQ(shell("ln -s new a; ln -s new b; $remat plan g.json --out a --json b"), 2);
  EXPECT_TRUE(holds(text("err"), "--out and --json are the same file"));
}

}  // namespace
}  // namespace remat::cli
