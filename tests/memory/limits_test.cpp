#include "memory/limits.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <remat/memory.h>

namespace remat::memory {
namespace {

namespace fs = std::filesystem;

class Cgroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("remat_cgroups_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int64_t limit() const { return cgroup_limit(root_ / "membership", root_ / "mount"); }

  fs::path root_;
};

TEST_F(Cgroups, VersionTwoTakesTheSmallestOfAllGroupsAround) {
  write("membership", "0::/outer/inner\n");
  write("mount/outer/memory.max", "3000\n");
  write("mount/outer/inner/memory.max", "max\n");
  EXPECT_EQ(limit(), 3000);
  write("mount/outer/inner/memory.max", "2000\n");
  EXPECT_EQ(limit(), 2000);
  write("mount/memory.max", "1000\n");
  EXPECT_EQ(limit(), 1000);
}

TEST_F(Cgroups, VersionOneReadsTheMemoryControllerOnly) {
  write("membership", "5:cpu,cpuacct:/a\n4:blkio,memory:/b\n1:name=systemd:/memory\n");
  write("mount/memory/a/memory.limit_in_bytes", "100\n");
  write("mount/memory/b/memory.limit_in_bytes", "200\n");
  EXPECT_EQ(limit(), 200);
}

TEST_F(Cgroups, APathThatIsNotVisibleLeavesTheLimitAtTheMount) {
  write("membership", "4:memory:/docker/0123\n");
  write("mount/memory/memory.limit_in_bytes", "700\n");
  EXPECT_EQ(limit(), 700);
}

TEST_F(Cgroups, MixedSystemsMountVersionTwoBesideVersionOne) {
  write("membership", "4:memory:/job\n0::/job\n");
  write("mount/memory/job/memory.limit_in_bytes", "900\n");
  write("mount/unified/job/memory.max", "800\n");
  EXPECT_EQ(limit(), 800);
}

TEST_F(Cgroups, AGroupOutsideTheNamespaceIsNotFollowed) {
  write("membership", "0::/../sibling\n");
  write("sibling/memory.max", "5\n");
  fs::create_directories(root_ / "mount");
  EXPECT_EQ(limit(), INT64_MAX);
}

TEST_F(Cgroups, NothingReadableMeansNoLimit) {
  EXPECT_EQ(limit(), INT64_MAX);
  for (const std::string text : {"", "nonsense", "12x", "-5", "0", "99999999999999999999999"}) {
    write("membership", "0::/g\nshort line\n");
    write("mount/g/memory.max", text);
    EXPECT_EQ(limit(), INT64_MAX) << text;
  }
}

TEST(Limits, PhysicalMemoryIsWhatTheKernelSays) {
  std::ifstream in("/proc/meminfo");
  std::string name;
  int64_t kibibytes = 0;
  in >> name >> kibibytes;
  ASSERT_EQ(name, "MemTotal:");
  EXPECT_EQ(physical_memory(), kibibytes * 1024);
}

TEST(Limits, ResidentPeakGrowsWithTouchedMemoryAndStays) {
  const int64_t before = resident_peak();
  constexpr size_t kBytes = size_t{256} << 20;
  { std::vector<char> touched(kBytes, 1); }
  // The process may have had room in memory it had touched and freed before, hence half.
  EXPECT_GE(resident_peak(), before + static_cast<int64_t>(kBytes / 2));
  EXPECT_GE(resident_peak(), static_cast<int64_t>(kBytes));
}

TEST(AddressSpace, IsWhatTheProcessMayMap) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(address_space().left(), INT64_MAX) << "the tests run without ulimit -v and -d";
  constexpr int64_t kLimit = int64_t{1} << 40;
  const rlimit limited{static_cast<rlim_t>(kLimit), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limited), 0);
  const AddressSpace small = address_space();
  const std::vector<char> more(64 << 20);
  const AddressSpace large = address_space();
  EXPECT_EQ(address_space_limit(), kLimit);
  setrlimit(RLIMIT_DATA, &before);
  EXPECT_EQ(small.limit, kLimit);
  EXPECT_EQ(std::string(small.name), "ulimit -d");
  EXPECT_EQ(small.left(), kLimit - small.used);
  EXPECT_GE(large.used - small.used, 64 << 20);
  EXPECT_LT(large.used - small.used, 65 << 20);
  EXPECT_EQ(address_space_limit(), INT64_MAX);
}

}  // namespace
}  // namespace remat::memory
