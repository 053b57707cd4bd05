#include "cli/checkpoint_file.h"

#include <csignal>

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

using test::read_all;

class CheckpointFileTest : public ::testing::Test {
 protected:
  // More than one buffer of the reader's, and not a multiple of it.
  static std::string payload() {
    std::string text(3'000'001, '\0');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 4);
    return text;
  }

  void write(const std::string& text, const nlohmann::json& about = {{"step", 3}}) const {
    CheckpointWriter writer(path_, about);
    writer.append(text.data(), text.size() / 2);
    writer.append(text.data() + text.size() / 2, text.size() - text.size() / 2);
    writer.commit();
  }

  std::string read() const {
    const CheckpointReader reader(path_);
    std::string text(reader.payload_size(), '\0');
    EXPECT_EQ(reader.read(0, text.data(), text.size()), text.size());
    return text;
  }

  bool alone() const { return directory_.names() == std::vector<std::string>{"run.ckpt"}; }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("run.ckpt");
};

TEST_F(CheckpointFileTest, ReadsBackWhatWasWritten) {
  const nlohmann::json about = {{"step", 12}, {"text", {{"bytes", 5}}}};
  write(payload(), about);
  EXPECT_EQ(CheckpointReader(path_).about(), about);
  EXPECT_TRUE(read() == payload());
  EXPECT_TRUE(alone());
}

TEST_F(CheckpointFileTest, ReadsPartsAndStopsAtTheEnd) {
  write("0123456789");
  const CheckpointReader reader(path_);
  char text[8] = {};
  EXPECT_EQ(reader.read(7, text, 8), 3u);
  EXPECT_EQ(std::string(text, 3), "789");
  EXPECT_EQ(reader.read(10, text, 8), 0u);
}

TEST_F(CheckpointFileTest, EveryDamagedByteIsNoticed) {
  write("0123456789");
  const auto good = read_all(path_);
  for (size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= 0x10;
    directory_.write("run.ckpt", bad);
    EXPECT_THROW(CheckpointReader{path_}, Error) << "byte " << i;
  }
}

TEST_F(CheckpointFileTest, DamageInsideALargePayloadIsNoticed) {
  write(payload());
  auto bytes = read_all(path_);
  bytes[bytes.size() / 2] ^= 1;
  directory_.write("run.ckpt", bytes);
  EXPECT_ERROR(CheckpointReader(path_), "is damaged: its checksum is wrong; use another checkpoint");
}

TEST_F(CheckpointFileTest, EveryTruncationIsNoticed) {
  write("0123456789");
  const auto good = read_all(path_);
  for (size_t size = 0; size < good.size(); ++size) {
    directory_.write("run.ckpt", good.substr(0, size));
    EXPECT_THROW(CheckpointReader{path_}, Error) << size << " bytes";
  }
  directory_.write("run.ckpt", good.substr(0, good.size() - 1));
  EXPECT_ERROR(CheckpointReader(path_),
               "its " + std::to_string(good.size() - 1) + " bytes do not end as a checkpoint does");
  directory_.write("run.ckpt", good + "more");
  EXPECT_ERROR(CheckpointReader(path_), "bytes do not end as a checkpoint does: it was cut, or added to");
}

TEST_F(CheckpointFileTest, AnotherFormatIsNamed) {
  directory_.write("run.ckpt", "In the beginning God created the heaven and the earth.");
  EXPECT_ERROR(CheckpointReader(path_), "is not a checkpoint of remat");
  directory_.write("run.ckpt", "");
  EXPECT_ERROR(CheckpointReader(path_), "is not a checkpoint of remat");
  write("0123456789");
  auto newer = read_all(path_);
  newer[8] = 2;
  directory_.write("run.ckpt", newer);
  EXPECT_ERROR(CheckpointReader(path_), "has format version 2, this program reads 1");
}

TEST_F(CheckpointFileTest, AMissingFileIsNamed) {
  EXPECT_ERROR(CheckpointReader(path_), "cannot open '" + path_ + "' (No such file or directory)");
  EXPECT_ERROR(CheckpointReader(directory_.path("")), "is not a regular file");
}

TEST_F(CheckpointFileTest, WithoutCommitTheOldFileStays) {
  write("old");
  {
    CheckpointWriter writer(path_, {});
    writer.append("new", 3);
  }
  EXPECT_EQ(read(), "old");
  EXPECT_TRUE(alone());
}

TEST_F(CheckpointFileTest, AFullDiskLeavesTheOldFile) {
  write("old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1'000'000;
  setrlimit(RLIMIT_FSIZE, &small);
  const auto message = test::error_of([&] { write(payload()); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(test::holds(message, "(File too large); an earlier checkpoint is untouched"));
  EXPECT_EQ(read(), "old");
  EXPECT_TRUE(alone());
}

TEST_F(CheckpointFileTest, ALinkStaysAndItsTargetIsReplaced) {
  write("old");
  std::filesystem::rename(path_, directory_.path("real"));
  std::filesystem::create_symlink("real", path_);
  write("new");
  EXPECT_EQ(read(), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(directory_.names(), (std::vector<std::string>{"real", "run.ckpt"}));
}

TEST_F(CheckpointFileTest, APathThatCannotBeWrittenIsFoundBeforehand) {
  EXPECT_ERROR(check_checkpoint_path("/no/such/directory/run.ckpt"), "(No such file or directory)");
  EXPECT_ERROR(check_checkpoint_path("/dev/full"), "is not a regular file");
  write("old");
  check_checkpoint_path(path_);
  EXPECT_EQ(read(), "old");
  EXPECT_TRUE(alone());
}

}  // namespace
}  // namespace remat::cli
