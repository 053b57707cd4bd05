#include "memory/memory_left.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "support/system_files.h"

namespace remat::memory {
namespace {

class MemoryLeft : public testing::Test {
 protected:
  int64_t bytes() const { return memory_left(files_.root()).bytes; }
  double stalled() const { return memory_left(files_.root()).stalled_percent; }

  test::SystemFiles files_;
};

TEST_F(MemoryLeft, IsWhatTheMachineHasWhereNoGroupHasALimit) {
  EXPECT_EQ(bytes(), INT64_MAX);
  files_.write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:    3000 kB\n");
  files_.write("proc/self/cgroup", "0::/job\n");
  files_.write("sys/fs/cgroup/job/memory.max", "max\n");
  files_.write("sys/fs/cgroup/job/memory.current", "5000\n");
  EXPECT_EQ(bytes(), 3000 * 1024);
  EXPECT_EQ(memory_left(files_.root()).where, files_.root() / "proc/meminfo");
}

TEST_F(MemoryLeft, OfAGroupIsItsLimitWithoutWhatIsUsedAndNotGivenUp) {
  files_.write("proc/meminfo", "MemAvailable:    3000000 kB\n");
  files_.write("proc/self/cgroup", "0::/outer/inner\n");
  files_.write("sys/fs/cgroup/outer/inner/memory.max", "9000\n");
  files_.write("sys/fs/cgroup/outer/inner/memory.current", "5000\n");
  EXPECT_EQ(bytes(), 4000);
  files_.write("sys/fs/cgroup/outer/inner/memory.stat", "anon 4000\ninactive_file_other 7\ninactive_file 600\n");
  EXPECT_EQ(bytes(), 4600);
  files_.write("sys/fs/cgroup/outer/inner/memory.high", "8000\n");
  EXPECT_EQ(bytes(), 3600) << "tasks wait from there on";
  files_.write("sys/fs/cgroup/outer/memory.max", "20000\n");
  files_.write("sys/fs/cgroup/outer/memory.current", "19000\n");
  EXPECT_EQ(bytes(), 1000) << "a neighbour in the group around it";
  EXPECT_EQ(memory_left(files_.root()).where, files_.root() / "sys/fs/cgroup/outer");
  files_.write("sys/fs/cgroup/outer/memory.current", "21000\n");
  EXPECT_EQ(bytes(), 0);
}

TEST_F(MemoryLeft, OfVersionOneIsReadToo) {
  files_.write("proc/self/cgroup", "4:memory:/docker/0123\n");
  files_.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
  files_.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  files_.write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
  EXPECT_EQ(bytes(), 4300);
}

TEST_F(MemoryLeft, TasksWaitAsTheInnermostGroupSaysOrElseTheMachine) {
  EXPECT_EQ(stalled(), 0);
  files_.write("proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=9.00 total=1\n");
  EXPECT_EQ(stalled(), 12.5);
  files_.write("proc/self/cgroup", "0::/outer/inner\n");
  files_.write("sys/fs/cgroup/outer/memory.pressure", "some avg10=30.00 avg60=1.00 avg300=0.00 total=5\n");
  EXPECT_EQ(stalled(), 30);
  files_.write("sys/fs/cgroup/outer/inner/memory.pressure", "some avg10=0.00 avg60=1.00 avg300=0.00 total=5\n");
  EXPECT_EQ(stalled(), 0) << "what the neighbours wait for";
}

TEST_F(MemoryLeft, FilesThatSayNothingAreLeftOut) {
  files_.write("proc/self/cgroup", "0::/g\n");
  for (const std::string text : {"", "nonsense", "-5", "99999999999999999999999"}) {
    files_.write("proc/meminfo", "MemAvailable: " + text);
    files_.write("sys/fs/cgroup/g/memory.max", text);
    files_.write("sys/fs/cgroup/g/memory.current", "5");
    files_.write("sys/fs/cgroup/g/memory.pressure", "some avg10=" + text);
    EXPECT_EQ(bytes(), INT64_MAX) << text;
    EXPECT_EQ(stalled(), 0) << text;
  }
}

TEST(SystemRoot, IsTheMachinesOwn) {
  EXPECT_EQ(system_root(), "/");
  EXPECT_GT(memory_left().bytes, 0);
  EXPECT_LT(memory_left().bytes, INT64_MAX);
}

}  // namespace
}  // namespace remat::memory
