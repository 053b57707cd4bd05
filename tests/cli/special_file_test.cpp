#include "cli/special_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

class SpecialFileTest : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  std::string file_ = directory_.write("file", "before ");
};

TEST_F(SpecialFileTest, FilesToReplaceAreNotSpecial) {
  EXPECT_FALSE(is_special_file(file_));
  EXPECT_FALSE(is_special_file(directory_.path("nothing")));
  EXPECT_TRUE(is_special_file("/dev/null"));
}

TEST_F(SpecialFileTest, OpenFilesHaveNumbers) {
  EXPECT_EQ(open_file_number("/dev/fd/7"), 7);
  EXPECT_EQ(open_file_number("/proc/self/fd/7"), 7);
  std::filesystem::create_symlink("/proc/self/fd/7", directory_.path("link"));
  EXPECT_EQ(open_file_number(follow_links(directory_.path("link"))), 7);
  EXPECT_EQ(open_file_number("/dev/fd/7x"), std::nullopt);
  EXPECT_EQ(open_file_number("7"), std::nullopt);
}

TEST_F(SpecialFileTest, AnOpenFileIsContinued) {
  const int number = open(file_.c_str(), O_WRONLY | O_APPEND);
  const auto path = "/dev/fd/" + std::to_string(number);
  EXPECT_TRUE(is_special_file(path));
  EXPECT_TRUE(can_write_special_file(path));
  EXPECT_TRUE(write_special_file(path, std::string(10000, 'x')));
  EXPECT_EQ(write(number, " after", 6), 6);
  close(number);
  EXPECT_EQ(test::read_all(file_), "before " + std::string(10000, 'x') + " after");
}

TEST_F(SpecialFileTest, AFileThatIsOpenForReadingIsRefused) {
  const int number = open(file_.c_str(), O_RDONLY);
  const auto path = "/dev/fd/" + std::to_string(number);
  EXPECT_FALSE(can_write_special_file(path));
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(write_special_file(path, "x"));
  close(number);
}

// Also where nobody reads it yet, and without the reader seeing an end.
TEST_F(SpecialFileTest, LookingAtAPipeDoesNotOpenIt) {
  const auto path = directory_.path("fifo");
  mkfifo(path.c_str(), 0600);
  EXPECT_TRUE(is_special_file(path));
  EXPECT_TRUE(can_write_special_file(path));
}

TEST_F(SpecialFileTest, AFullDeviceIsAnError) {
  EXPECT_FALSE(write_special_file("/dev/full", "x"));
  EXPECT_EQ(errno, ENOSPC);
}

}  // namespace
}  // namespace remat::cli
