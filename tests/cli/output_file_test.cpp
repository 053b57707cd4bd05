#include "cli/output_file.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

TEST(OutputFileTest, ReplacesAnEarlierFileAndLeavesNothingBeside) {
  const test::TemporaryDirectory directory;
  const auto path = directory.write("graph.json", "old");
  check_output_path(path, "out");
  EXPECT_EQ(test::read_all(path), "old");
  write_output(path, "new\n", "out");
  EXPECT_EQ(test::read_all(path), "new\n");
  EXPECT_EQ(directory.names(), std::vector<std::string>{"graph.json"});
}

TEST(OutputFileTest, MessagesNameTheOption) {
  EXPECT_ERROR(check_output_path("/no/such/file", "out"),
               "[out] cannot write '/no/such/file' (No such file or directory); give another path with --out");
  EXPECT_ERROR(check_output_path("/tmp", "curve"), "[curve] '/tmp' is a directory; give the path of a file in it");
  EXPECT_ERROR(write_output("/dev/full", "text", "curve"),
               "[curve] cannot write '/dev/full' (No space left on device); give another path with --curve");
}

TEST(OutputFileTest, NoPathMeansNoFile) {
  check_output_path("", "out");
  write_output("", "text", "out");
}

}  // namespace
}  // namespace remat::cli
