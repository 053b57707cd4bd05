#include "cli/replacement_file.h"

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>

#include "cli/interrupt.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;
using test::read_all;

bool replace(const std::string& path, const std::string& text) {
  ReplacementFile file;
  return file.open(path) && file.write(text.data(), text.size()) && file.commit();
}

class ReplacementFileTest : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  std::string path_ = directory_.write("a", "old");
};

TEST_F(ReplacementFileTest, ReplacesWhenItIsWhole) {
  {
    ReplacementFile file;
    ASSERT_TRUE(file.open(path_));
    ASSERT_TRUE(file.write("new", 3));
    EXPECT_EQ(read_all(path_), "old");
    ASSERT_TRUE(file.commit());
  }
  EXPECT_EQ(read_all(path_), "new");
  EXPECT_EQ(directory_.names(), Names{"a"});
}

TEST_F(ReplacementFileTest, IsRemovedWithoutCommit) {
  {
    ReplacementFile file;
    ASSERT_TRUE(file.open(path_));
    EXPECT_EQ(directory_.names().size(), 2u);
  }
  EXPECT_EQ(directory_.names(), Names{"a"});
  EXPECT_EQ(read_all(path_), "old");
}

using ReplacementFileDeathTest = ReplacementFileTest;

TEST_F(ReplacementFileDeathTest, IsRemovedWhenASignalEndsTheProcess) {
  const auto end_amid = [&] {
    catch_signals();
    ReplacementFile file;
    if (file.open(path_)) raise(SIGTERM);
  };
  EXPECT_EXIT(end_amid(), ::testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EQ(directory_.names(), Names{"a"});
}

TEST_F(ReplacementFileTest, LeavesTheFilesOfOthersAlone) {
  std::string part;
  {
    ReplacementFile file;
    ASSERT_TRUE(file.open(path_));
    part = file.part();
  }
  const Names others = {part, path_ + ".part"};
  for (const auto& other : others) directory_.write(fs::path(other).filename(), "theirs");
  EXPECT_TRUE(replace(path_, "new"));
  EXPECT_EQ(read_all(path_), "new");
  for (const auto& other : others) EXPECT_EQ(read_all(other), "theirs") << other;
  EXPECT_EQ(directory_.names().size(), 3u);
}

TEST_F(ReplacementFileTest, LinksStayAndLeadToTheNewFile) {
  fs::create_directory(directory_.path("d"));
  fs::create_symlink("../b", directory_.path("d/near"));
  fs::create_symlink(directory_.path("d/near"), directory_.path("far"));
  fs::create_symlink("a", directory_.path("b"));
  EXPECT_TRUE(replace(directory_.path("far"), "new"));
  EXPECT_EQ(read_all(path_), "new");
  for (const auto* link : {"far", "d/near", "b"}) EXPECT_TRUE(fs::is_symlink(directory_.path(link))) << link;
}

TEST_F(ReplacementFileTest, ALinkToNothingYetIsFollowed) {
  fs::create_symlink("later", directory_.path("link"));
  EXPECT_TRUE(replace(directory_.path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(directory_.path("link")));
  EXPECT_EQ(read_all(directory_.path("later")), "new");
}

TEST_F(ReplacementFileTest, LinksInACircleAreRefused) {
  fs::create_symlink("one", directory_.path("other"));
  fs::create_symlink("other", directory_.path("one"));
  EXPECT_FALSE(replace(directory_.path("one"), "new"));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_TRUE(fs::is_symlink(directory_.path("one")));
}

}  // namespace
}  // namespace remat::cli
