#include "device/arena.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "memory/limits.h"

namespace remat::memory {
namespace {

constexpr size_t kMiB = 1 << 20;

/// Pages of [data, data + bytes) that are in memory.
size_t resident_pages(void* data, size_t bytes) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + 4095) / 4096 * 4096;
  const size_t pages = (reinterpret_cast<uintptr_t>(data) + bytes - begin) / 4096;
  std::vector<unsigned char> resident(pages);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), pages * 4096, resident.data()), 0);
  size_t count = 0;
  for (unsigned char page : resident) count += page & 1;
  return count;
}

Block* touched(Arena& arena, size_t bytes) {
  Block* block = arena.allocate(bytes);
  if (block != nullptr) std::memset(block->data(), 0x5a, bytes);
  return block;
}

TEST(Arena, BlocksAreAlignedAsPyTorchAligns) {
  Arena arena;
  for (size_t bytes : {size_t{1}, size_t{65535}, 3 * kMiB + 7}) {
    Block* block = arena.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % 64, 0u);
    EXPECT_EQ(block->bytes, bytes);
    EXPECT_EQ(Block::of(block->data()), block);
  }
}

TEST(Arena, AFreedBlockIsUsedAgainWithItsPages) {
  Arena arena;
  Block* first = touched(arena, 8 * kMiB);
  arena.free(first);
  EXPECT_GE(arena.cached(), static_cast<int64_t>(8 * kMiB));
  Block* second = arena.allocate(8 * kMiB);
  EXPECT_EQ(second, first);
  EXPECT_EQ(arena.cached(), 0);
  EXPECT_EQ(resident_pages(second->data(), 8 * kMiB), 8 * kMiB / 4096 - 1);
}

TEST(Arena, NeighboursCoalesce) {
  Arena arena;
  std::vector<Block*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(arena.allocate(kMiB));
  Block* fence = arena.allocate(kMiB);
  arena.free(blocks[0]);
  arena.free(blocks[2]);
  arena.free(blocks[1]);
  EXPECT_EQ(arena.allocate(3 * kMiB), blocks[0]);
  EXPECT_EQ(arena.cached(), 0);
  arena.free(fence);
}

TEST(Arena, TakesTheSmallestBlockThatFits) {
  Arena arena;
  Block* large = arena.allocate(4 * kMiB);
  Block* fence = arena.allocate(kMiB);
  Block* small = arena.allocate(2 * kMiB);
  Block* end = arena.allocate(kMiB);
  arena.free(large);
  arena.free(small);
  EXPECT_EQ(arena.allocate(2 * kMiB - 4096), small);
  EXPECT_EQ(arena.allocate(4 * kMiB), large);
  arena.free(fence);
  arena.free(end);
}

TEST(Arena, TakesTheSmallestOfSimilarSizesInWhateverOrderTheyCame) {
  for (const bool small_first : {true, false}) {
    Arena arena;
    Block* large = arena.allocate(2 * kMiB + 65536);
    arena.allocate(kMiB);
    Block* small = arena.allocate(2 * kMiB + 32768);
    arena.allocate(kMiB);
    arena.free(small_first ? small : large);
    arena.free(small_first ? large : small);
    EXPECT_EQ(arena.allocate(2 * kMiB), small);
  }
}

TEST(Arena, PurgeGivesPagesBackAndAsManyAsAsked) {
  Arena arena;
  Block* block = touched(arena, 16 * kMiB);
  arena.free(block);
  const int64_t all = arena.cached();
  arena.purge(4 * kMiB);
  EXPECT_LE(arena.cached(), all - static_cast<int64_t>(4 * kMiB));
  EXPECT_GE(arena.cached(), all - static_cast<int64_t>(4 * kMiB + 8192));
  const size_t left = resident_pages(block->data(), 16 * kMiB);
  EXPECT_LE(left, 12 * kMiB / 4096 + 2);
  EXPECT_GE(left, 12 * kMiB / 4096 - 2);
  arena.purge(12 * kMiB);
  EXPECT_EQ(arena.cached(), 0);
}

TEST(Arena, PurgedBlocksCoalesceIntoRoomForALargerOne) {
  Arena arena;
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(touched(arena, kMiB));
  Block* fence = arena.allocate(kMiB);
  for (int i = 0; i < 8; i += 2) arena.free(blocks[i]);
  arena.purge(kMiB);
  for (int i = 1; i < 8; i += 2) arena.free(blocks[i]);
  arena.purge(SIZE_MAX);
  EXPECT_EQ(arena.cached(), 0);
  EXPECT_EQ(arena.allocate(8 * kMiB), blocks[0]);
  arena.free(fence);
}

TEST(Arena, RefusesWhatTheSystemRefuses) {
  Arena arena;
  EXPECT_EQ(arena.allocate(size_t{1} << 46), nullptr);
  EXPECT_EQ(arena.allocate(SIZE_MAX - 10), nullptr);
  EXPECT_NE(arena.allocate(kMiB), nullptr);
}

TEST(Arena, GivesFreeRegionsBackBeforeItRefuses) {
  Arena arena;
  // Room in the address space for one region of this size, not for two.
  constexpr size_t kBytes = size_t{3} << 30;
  Block* block = arena.allocate(kBytes);
  ASSERT_NE(block, nullptr);
  rlimit old{};
  getrlimit(RLIMIT_AS, &old);
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  ASSERT_EQ(std::fscanf(file, "%ld", &pages), 1);
  std::fclose(file);
  rlimit tight{static_cast<rlim_t>(pages) * 4096 + (size_t{64} << 20), old.rlim_max};
  setrlimit(RLIMIT_AS, &tight);
  Block* refused = arena.allocate(kBytes + kMiB);
  arena.free(block);
  Block* larger = arena.allocate(kBytes + kMiB);
  setrlimit(RLIMIT_AS, &old);
  EXPECT_EQ(refused, nullptr);
  EXPECT_NE(larger, nullptr);
}

/// Holes in regions would be missing to what allocates by other ways.
TEST(Arena, KeepsNothingWhereAddressSpaceIsLimited) {
  Arena arena;
  rlimit before{};
  getrlimit(RLIMIT_DATA, &before);
  rlimit limited{rlim_t{1} << 40, before.rlim_max};
  setrlimit(RLIMIT_DATA, &limited);
  const int64_t used = address_space().used;
  Block* const first = arena.allocate(8 * kMiB);
  Block* const second = arena.allocate(8 * kMiB);
  const int64_t with_both = address_space().used;
  arena.free(first);
  const int64_t with_one = address_space().used;
  const auto left = address_space().left();
  Block* const refused = arena.allocate(8 * kMiB, left - static_cast<int64_t>(kMiB));
  Block* const third = arena.allocate(8 * kMiB, left - static_cast<int64_t>(9 * kMiB));
  setrlimit(RLIMIT_DATA, &before);
  EXPECT_LT(with_both - used, static_cast<int64_t>(17 * kMiB));
  EXPECT_LT(with_one - used, static_cast<int64_t>(9 * kMiB));
  EXPECT_EQ(arena.cached() + arena.clean(), 0);
  EXPECT_EQ(refused, nullptr);
  ASSERT_NE(third, nullptr);
  arena.free(second);
  arena.free(third);
}

TEST(Arena, OwnsItsBlocksOnly) {
  Arena arena;
  int on_stack = 0;
  Block* block = arena.allocate(kMiB);
  EXPECT_TRUE(arena.owns(block->data()));
  EXPECT_FALSE(arena.owns(&on_stack));
}

/// Random work; every block keeps the pattern that was written into it, and all of it joins again in the end.
TEST(Arena, BlocksNeverOverlap) {
  Arena arena;
  std::mt19937 random(1);
  std::vector<std::pair<Block*, unsigned char>> live;
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 40 && random() % 3 != 0) {
      Block* block = arena.allocate(1 + random() % (random() % 8 == 0 ? 2 * kMiB : 100'000));
      ASSERT_NE(block, nullptr);
      live.emplace_back(block, static_cast<unsigned char>(i));
      std::memset(block->data(), i, block->bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [block, pattern] = live.back();
      live.pop_back();
      const auto* bytes = static_cast<unsigned char*>(block->data());
      ASSERT_EQ(bytes[0], pattern);
      ASSERT_EQ(std::memcmp(bytes, bytes + 1, block->bytes - 1), 0);
      arena.free(block);
    }
    if (random() % 16 == 0) arena.purge(random() % (4 * kMiB));
  }
  for (const auto& [block, pattern] : live) arena.free(block);
  arena.purge(SIZE_MAX);
  EXPECT_EQ(arena.cached(), 0);
  Block* everything = arena.allocate((size_t{1} << 30) - 128);
  ASSERT_NE(everything, nullptr);
  EXPECT_EQ(everything->before, nullptr);
}

TEST(Arena, ThreadsShareIt) {
  Arena arena;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 500; ++i) {
        Block* block = arena.allocate(1 + random() % 200'000);
        std::memset(block->data(), t, block->bytes);
        const auto* bytes = static_cast<unsigned char*>(block->data());
        if (std::memcmp(bytes, bytes + 1, block->bytes - 1) != 0) ADD_FAILURE() << "another thread wrote here";
        arena.free(block);
        if (i % 50 == 0) arena.purge(100'000);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  arena.purge(SIZE_MAX);
  EXPECT_EQ(arena.cached(), 0);
}

}  // namespace
}  // namespace remat::memory
