#include "cli/json_file.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

TEST(JsonFileTest, ReplacesAnEarlierFileAndLeavesNothingBeside) {
  const test::TemporaryDirectory directory;
  const auto path = directory.write("run.json", "old");
  check_json_path(path);
  EXPECT_EQ(test::read_all(path), "old");
  write_json(path, {{"a", 1}});
  EXPECT_EQ(nlohmann::json::parse(test::read_all(path)), (nlohmann::json{{"a", 1}}));
  EXPECT_EQ(directory.names().size(), 1u);
}

TEST(JsonFileTest, NoPathMeansNoFile) {
  check_json_path("");
  write_json("", {{"a", 1}});
}

TEST(JsonFileTest, APathThatCannotBeWrittenIsFoundBeforehand) {
  EXPECT_ERROR(check_json_path("/no/such/run.json"), "[json] cannot write '/no/such/run.json' (No such file");
  EXPECT_ERROR(check_json_path("/tmp"), "[json] '/tmp' is a directory");
}

TEST(JsonFileTest, AFullDiskIsAnError) {
  EXPECT_ERROR(write_json("/dev/full", {{"a", 1}}), "[json] cannot write '/dev/full' (No space left on device)");
}

}  // namespace
}  // namespace remat::cli
