#include "cli/input_file.h"

#include <chrono>
#include <fstream>
#include <thread>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

class InputFileTest : public ::testing::Test {
 protected:
  // What a pipe to which `text` is written reads as, or the message.
  std::string from_pipe(const std::string& text, const InputKind& kind) const {
    const auto path = directory_.path("fifo");
    mkfifo(path.c_str(), 0600);
    std::thread writer([&] { directory_.write("fifo", text); });
    std::string read;
    const auto message = test::error_of([&] { read = read_input(path, kind); });
    writer.join();
    return read.empty() ? message : read;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(InputFileTest, FilesAndPipesAreReadWhole) {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i);
  EXPECT_EQ(read_input(directory_.write("a", text), {"data", "mend it"}), text);
  EXPECT_EQ(from_pipe(text, {"data", "mend it"}), text);
  EXPECT_EQ(read_input(directory_.write("a", ""), {"data", "mend it"}), "");
  EXPECT_FALSE(read_input("/proc/self/status", {"data", "mend it"}).empty());
}

TEST_F(InputFileTest, APipeIsWaitedForAWhile) {
  const auto path = directory_.path("fifo");
  mkfifo(path.c_str(), 0600);
  EXPECT_ERROR(read_input(path, {"data", "mend it"}),
               "[data] '" + path + "' is a pipe, and nobody has written to it in 10 s: start first what does; mend it");
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream late(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    late << "late";
    late.flush();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    late << "r";
  });
  EXPECT_EQ(read_input(path, {"data", "mend it"}), "later");
  writer.join();
}

TEST_F(InputFileTest, WhatIsTooLargeIsRefused) {
  const InputKind four{"graph", "mend it", 4};
  EXPECT_EQ(read_input(directory_.write("a", "1234"), four), "1234");
  EXPECT_EQ(from_pipe("1234", four), "1234");
  const auto path = directory_.write("a", "12345");
  EXPECT_ERROR(read_input(path, four), "[graph] '" + path + "' has 5 B (5 bytes), more than 4 B (4 bytes); mend it");
  EXPECT_EQ(from_pipe("12345", four), "[graph] '" + directory_.path("fifo") + "' has more than 4 B (4 bytes); mend it");
  EXPECT_ERROR(read_input("/proc/self/status", four), "has more than 4 B (4 bytes)");
}

TEST_F(InputFileTest, WhatIsNoFileIsRefused) {
  EXPECT_ERROR(read_input("/dev/zero", {"data", "mend it"}), "[data] '/dev/zero' is a device, not a file; mend it");
  EXPECT_ERROR(read_input("/tmp", {"data", "mend it"}), "[data] '/tmp' is a directory; mend it");
  EXPECT_ERROR(read_input("/no/such", {"data", "mend it"}),
               "[data] cannot read '/no/such' (No such file or directory); mend it");
}

}  // namespace
}  // namespace remat::cli
