#include "cli/checkpoint_lock.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

TEST(CheckpointLockTest, HoldsACheckpointAgainstOthersUntilItIsGone) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path("a.ckpt");
  {
    const CheckpointLock lock(path);
    EXPECT_THROW(CheckpointLock{path}, Error);
    const CheckpointLock other(directory.path("b.ckpt"));
  }
  EXPECT_TRUE(directory.names().empty());
  const CheckpointLock again(path);
}

TEST(CheckpointLockTest, AFileThatIsLeftHoldsNothing) {
  const test::TemporaryDirectory directory;
  directory.write("a.ckpt.lock", "12345\n");
  const CheckpointLock lock(directory.path("a.ckpt"));
  EXPECT_THROW(CheckpointLock{directory.path("a.ckpt")}, Error);
}

TEST(CheckpointLockTest, WhereNothingCanBeWrittenNothingIsHeld) {
  const test::TemporaryDirectory directory;
  const CheckpointLock missing(directory.path("no/such.ckpt"));
  const CheckpointLock device("/dev/null");
  EXPECT_TRUE(directory.names().empty());
  EXPECT_FALSE(std::filesystem::exists("/dev/null.lock"));
}

}  // namespace
}  // namespace remat::cli
