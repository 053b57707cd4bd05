// The states of several ranks in one file.
#include "cli/rank_parts.h"

#include <cstring>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "cli/rank_threads.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

using Save = std::function<void(const WriteBytes&)>;

Save saving(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces)](const WriteBytes& write) {
    for (const std::string& piece : pieces) write(piece.data(), piece.size());
  };
}

/// Each rank saves; `write` is rank 0's.
void write_all(const std::vector<Save>& saves, const WriteBytes& write) {
  test::on_ranks(saves.size(), [&](RankGroup& ranks) {
    const auto& save = saves[static_cast<size_t>(ranks.rank())];
    if (ranks.rank() == 0) return write_parts(ranks, save, write);
    try {
      write_parts(ranks, save, [](const void*, size_t) { FAIL() << "only rank 0 writes"; });
    } catch (const Error&) {  // its own, which it tells
    }
  });
}

struct Bytes {
  std::string bytes;
  WriteBytes write() {
    return [this](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  }
  StatePart whole() const {
    const auto read = [this](size_t offset, void* to, size_t size) {
      const size_t count = offset < bytes.size() ? std::min(size, bytes.size() - offset) : 0;
      std::memcpy(to, bytes.data() + offset, count);
      return count;
    };
    return {.read = read, .size = bytes.size()};
  }
};

std::string text_of(const StatePart& part) {
  std::string text(part.size + 10, '-');
  text.resize(part.read(0, text.data(), text.size()));
  return text;
}

TEST(RankParts, EachProcessFindsItsOwn) {
  const std::string large(9 << 20, 'x');  // more than one message
  Bytes file;
  write_all({saving({"zero", "0"}), saving({}), saving({"2", large})}, file.write());
  const auto parts = find_parts(file.whole(), 3);
  EXPECT_EQ(text_of(parts[0]), "zero0");
  EXPECT_EQ(text_of(parts[1]), "");
  EXPECT_EQ(text_of(parts[2]), "2" + large);
  char byte = 0;
  EXPECT_EQ(parts[0].read(4, &byte, 1), 1U);
  EXPECT_EQ(byte, '0');
  EXPECT_EQ(parts[0].read(5, &byte, 1), 0U) << "what follows is another's";
}

TEST(RankParts, AreRefusedByAnotherNumberOfProcesses) {
  Bytes file;
  write_all({saving({"zero"}), saving({"one"})}, file.write());
  EXPECT_ERROR(find_parts(file.whole(), 3), "are not the states of 3 processes");
  EXPECT_ERROR(find_parts(file.whole(), 1), "are not the states of 1 processes");
  EXPECT_ERROR(find_parts({.read = file.whole().read, .size = 3}, 2), "its 3 bytes are not the states");
}

TEST(RankParts, AFullDiskIsReportedWhenAllHaveBeenHeard) {
  int heard = 0;
  const WriteBytes full = [&](const void*, size_t) {
    ++heard;
    throw Error("[test] full");
  };
  EXPECT_ERROR(write_all({saving({"zero"}), saving({"one"})}, full), "[test] full");
  EXPECT_EQ(heard, 1);
}

TEST(RankParts, ARankThatCannotSaveThrowsWhenRankZeroHasHeardTheEnd) {
  bool thrown = false;
  const Save fails = [](const WriteBytes& write) {
    write("a", 1);
    throw Error("[test] broken");
  };
  test::on_ranks(2, [&](RankGroup& ranks) {
    Bytes file;
    if (ranks.rank() == 0) return write_parts(ranks, saving({"zero"}), file.write());
    try {
      write_parts(ranks, fails, {});
    } catch (const Error&) {
      thrown = true;
    }
  });
  EXPECT_TRUE(thrown);
}

}  // namespace
}  // namespace remat::cli
