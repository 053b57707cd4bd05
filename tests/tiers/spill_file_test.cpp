#include "tiers/spill_file.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <remat/error.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tiers/open_file.h"

using namespace remat;
using namespace remat::tiers;
using remat::test::descriptor_in;

namespace {

std::vector<char> some_bytes(size_t count, unsigned seed = 1) {
  std::vector<char> bytes(count);
  std::mt19937 random(seed);
  for (auto& each : bytes) each = static_cast<char>(random());
  return bytes;
}

/// Larger than a thread's buffer, and no whole number of blocks.
constexpr size_t kLarge = (size_t{9} << 20) + 77;

struct SpillFiles : testing::Test {
  const remat::test::TemporaryDirectory directory;
  std::string path() const { return std::filesystem::path(directory.path("")).parent_path().string(); }
};

TEST_F(SpillFiles, GiveBackTheBytesOfPiecesOfAllLengths) {
  SpillFile file(path());
  std::vector<std::vector<char>> written;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, kLarge}) {
    written.push_back(some_bytes(count));
  }
  std::vector<std::shared_ptr<Piece>> pieces;
  for (const auto& bytes : written) pieces.push_back(file.write(bytes.data(), static_cast<int64_t>(bytes.size())));
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(pieces[i]->wait_written()) << pieces[i]->error();
    std::vector<char> read(written[i].size());
    pieces[i]->begin_read(read.data());
    EXPECT_TRUE(pieces[i]->wait_read()) << pieces[i]->error();
    EXPECT_TRUE(read == written[i]) << read.size() << " bytes";
  }
  EXPECT_TRUE(directory.names().empty());  // no name, even now
}

TEST_F(SpillFiles, GiveBackTheBytesWhereverInAPageTheyBegin) {
  SpillFile file(path());
  constexpr size_t kPage = 4096;
  struct Page {
    alignas(kPage) char bytes[kPage];
  };
  std::vector<Page> memory(2 + kLarge / kPage + 1), other(memory.size());
  char *const from = memory.front().bytes, *const to = other.front().bytes;
  const auto bytes = some_bytes(memory.size() * kPage);
  std::ranges::copy(bytes, from);
  for (const size_t count : {size_t{1}, size_t{4095}, size_t{4096}, size_t{8191}, size_t{8192}, size_t{8200}, kLarge}) {
    for (const size_t begin : {0, 1, 64, 4095}) {
      const auto piece = file.write(from + begin, static_cast<int64_t>(count));
      for (const size_t again : {begin, size_t{0}, size_t{64}}) {
        std::fill_n(to, again + count + 1, 'x');
        piece->begin_read(to + again);
        ASSERT_TRUE(piece->wait_read()) << piece->error();
        ASSERT_TRUE(std::equal(from + begin, from + begin + count, to + again)) << count << " bytes at " << begin;
        ASSERT_EQ(to[again + count], 'x') << count << " bytes at " << again;
        ASSERT_TRUE(again == 0 || to[again - 1] == 'x');
      }
      EXPECT_EQ(file.counts().bytes_in_use, static_cast<int64_t>((count + kPage - 1) / kPage * kPage));
    }
  }
}

TEST_F(SpillFiles, ReadWhatIsStillBeingWritten) {
  SpillFile file(path());
  for (int round = 0; round < 20; ++round) {
    const auto bytes = some_bytes(1 << 20, round);
    const auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    std::vector<char> read(bytes.size());
    piece->begin_read(read.data());
    ASSERT_TRUE(piece->wait_read()) << piece->error();
    EXPECT_TRUE(read == bytes);
  }
}

TEST_F(SpillFiles, UseThePlacesOfPiecesAgain) {
  SpillFile file(path(), 64 << 10);
  const auto bytes = some_bytes(64 << 10);
  for (int round = 0; round < 10; ++round) {
    const auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(piece->wait_written()) << piece->error();
    EXPECT_EQ(file.counts().bytes_in_use, 64 << 10);
  }
  const auto counts = file.counts();
  EXPECT_EQ(counts.bytes_in_use, 0);
  EXPECT_EQ(counts.file_bytes, 64 << 10);
  EXPECT_EQ(counts.written_bytes, 640 << 10);
  EXPECT_EQ(counts.read_bytes, 0);
  EXPECT_GT(counts.write_seconds, 0);
}

TEST_F(SpillFiles, GiveBackPiecesThatAreSpreadOverGaps) {
  SpillFile file(path(), 32 << 10);
  std::vector<std::shared_ptr<Piece>> small;
  const auto block = some_bytes(4096);
  for (int i = 0; i < 8; ++i) small.push_back(file.write(block.data(), 4096));
  for (int i = 0; i < 8; i += 2) small[i] = nullptr;
  const auto bytes = some_bytes((16 << 10) - 5);
  const auto spread = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  ASSERT_TRUE(spread->wait_written()) << spread->error();
  std::vector<char> read(bytes.size());
  spread->begin_read(read.data());
  ASSERT_TRUE(spread->wait_read()) << spread->error();
  EXPECT_TRUE(read == bytes);
}

TEST_F(SpillFiles, SayWhatTheLimitLeaves) {
  SpillFile file(path(), 10000);
  const auto bytes = some_bytes(8192);
  const auto first = file.write(bytes.data(), 8192);
  const auto second = file.write(bytes.data(), 1);
  EXPECT_FALSE(second->wait_written());
  EXPECT_EQ(second->error(), "1 bytes could not be written to a file in \"" + path() +
                                 "\": the limit is 10000 bytes, of which 8192 are in use");
  char read = 0;
  second->begin_read(&read);
  EXPECT_FALSE(second->wait_read());
  EXPECT_TRUE(first->wait_written());
}

TEST_F(SpillFiles, NoticeBytesThatAreNotThoseWritten) {
  SpillFile file(path());
  const auto bytes = some_bytes(kLarge);
  const auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  ASSERT_TRUE(piece->wait_written());
  // By another description of the same file, without O_DIRECT.
  const int other = ::open(("/proc/self/fd/" + std::to_string(descriptor_in(path()))).c_str(), O_RDWR);
  ASSERT_GE(other, 0);
  const char changed = static_cast<char>(bytes[kLarge - 10] ^ 1);
  ASSERT_EQ(::pwrite(other, &changed, 1, kLarge - 10), 1);
  ASSERT_EQ(::fsync(other), 0);
  std::vector<char> read(bytes.size());
  piece->begin_read(read.data());
  EXPECT_FALSE(piece->wait_read());
  EXPECT_NE(piece->error().find("could not be read from"), std::string::npos) << piece->error();
  EXPECT_NE(piece->error().find("the checksum differs"), std::string::npos) << piece->error();
  // Mended, it can be read again.
  ASSERT_EQ(::pwrite(other, &bytes[kLarge - 10], 1, kLarge - 10), 1);
  ASSERT_EQ(::fsync(other), 0);
  ::close(other);
  piece->begin_read(read.data());
  EXPECT_TRUE(piece->wait_read()) << piece->error();
  EXPECT_TRUE(read == bytes);
}

TEST_F(SpillFiles, NoticeAFileThatWasCutShort) {
  SpillFile file(path());
  const auto bytes = some_bytes(kLarge);
  const auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  ASSERT_TRUE(piece->wait_written());
  ASSERT_EQ(::ftruncate(descriptor_in(path()), 8192), 0);
  std::vector<char> read(bytes.size());
  piece->begin_read(read.data());
  EXPECT_FALSE(piece->wait_read());
  EXPECT_NE(piece->error().find("the file ends after 8192 bytes"), std::string::npos) << piece->error();
}

TEST_F(SpillFiles, SayWhyADescriptorFails) {
  SpillFile file(path());
  const int descriptor = descriptor_in(path());
  const int nowhere = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(nowhere, descriptor), descriptor);
  const auto bytes = some_bytes(5000);
  const auto piece = file.write(bytes.data(), 5000);
  EXPECT_FALSE(piece->wait_written());
  EXPECT_NE(piece->error().find("Bad file descriptor"), std::string::npos) << piece->error();
  EXPECT_EQ(file.counts().bytes_in_use, 0);
  ::close(nowhere);
}

TEST_F(SpillFiles, OutliveALimitOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  SpillFile file(path());
  const auto bytes = some_bytes(1 << 20);
  const rlimit small{64 << 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto piece = file.write(bytes.data(), 1 << 20);  // SIGXFSZ would end the process
  const bool written = piece->wait_written();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(written);
  EXPECT_NE(piece->error().find("File too large"), std::string::npos) << piece->error();
  EXPECT_EQ(file.counts().bytes_in_use, 0);
  const auto again = file.write(bytes.data(), 1 << 20);
  EXPECT_TRUE(again->wait_written()) << again->error();
}

TEST_F(SpillFiles, AreRefusedWhereNoneCanBeMade) {
  EXPECT_ERROR(SpillFile(path() + "/nowhere"), "[spill file] no file can be made in \"" + path() +
                                                   "/nowhere\": No such file or directory; name a directory");
  EXPECT_ERROR(SpillFile("/proc"), "; name a directory that is there and can be written");
}

TEST_F(SpillFiles, GoOnWhenTheirDirectoryIsRemoved) {
  SpillFile file(path());
  std::filesystem::remove(path());
  const auto bytes = some_bytes(5000);
  const auto piece = file.write(bytes.data(), 5000);
  std::vector<char> read(5000);
  piece->begin_read(read.data());
  EXPECT_TRUE(piece->wait_read()) << piece->error();
  EXPECT_TRUE(read == bytes);
}

TEST_F(SpillFiles, AreClosedAfterTheLastPiece) {
  const auto bytes = some_bytes(5000);
  auto file = std::make_unique<SpillFile>(path());
  auto piece = file->write(bytes.data(), 5000);
  file = nullptr;
  std::vector<char> read(5000);
  piece->begin_read(read.data());
  EXPECT_TRUE(piece->wait_read()) << piece->error();
  EXPECT_TRUE(read == bytes);
  piece = nullptr;
  EXPECT_THROW(descriptor_in(path()), std::runtime_error);
}

TEST_F(SpillFiles, LeaveMemoryAloneOnceAPieceIsDestroyed) {
  SpillFile file(path());
  const auto bytes = some_bytes(kLarge);
  for (int round = 0; round < 3; ++round) {
    auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(piece->wait_written());
    std::vector<char> read(bytes.size());
    const double before = file.counts().read_seconds;
    piece->begin_read(read.data());
    while (file.counts().read_seconds == before) std::this_thread::yield();  // until it is in progress
    piece = nullptr;
    std::fill(read.begin(), read.end(), 0);
    // What would still be read is over when this is.
    ASSERT_TRUE(file.write(bytes.data(), static_cast<int64_t>(bytes.size()))->wait_written());
    EXPECT_TRUE(read == std::vector<char>(bytes.size()));
  }
}

TEST_F(SpillFiles, DoNothingInAChild) {
  SpillFile file(path());
  const auto bytes = some_bytes(5000);
  auto piece = file.write(bytes.data(), 5000);
  ASSERT_TRUE(piece->wait_written());
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char> read(5000);
    piece->begin_read(read.data());
    const bool refused = !piece->wait_read() && !file.write(bytes.data(), 10)->wait_written() &&
                         piece->error().find("forked") != std::string::npos;
    piece = nullptr;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<char> read(5000);
  piece->begin_read(read.data());
  EXPECT_TRUE(piece->wait_read()) << piece->error();
  EXPECT_TRUE(read == bytes);
}

TEST_F(SpillFiles, ServeSeveralThreads) {
  SpillFile file(path(), 1 << 20);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 50; ++round) {
        const auto bytes = some_bytes(1000 + 977 * t + 1313 * round, t);
        const auto piece = file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
        if (round % 5 == 0) continue;  // destroyed before or while it is written
        std::vector<char> read(bytes.size());
        piece->begin_read(read.data());
        if (!piece->wait_read() || read != bytes) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(file.counts().bytes_in_use, 0);
}

}  // namespace
