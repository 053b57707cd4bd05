#include "plan/caching_allocator.h"

#include <array>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <remat/error.h>

namespace remat::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// What is reserved after these requests, none of which is freed.
int64_t reserved_for(std::initializer_list<int64_t> requests, const char* settings = "") {
  CachingAllocator allocator(parse_allocator_settings(settings));
  for (const int64_t bytes : requests) allocator.allocate(bytes);
  return allocator.reserved();
}

int64_t allocated_for(int64_t bytes, const char* settings = "") {
  CachingAllocator allocator(parse_allocator_settings(settings));
  allocator.allocate(bytes);
  return allocator.allocated();
}

TEST(CachingAllocator, RoundsTo512Bytes) {
  EXPECT_EQ(allocated_for(1), 512);
  EXPECT_EQ(allocated_for(512), 512);
  EXPECT_EQ(allocated_for(513), 1024);
}

TEST(CachingAllocator, TakesSegmentsBySizeOfTheRequest) {
  EXPECT_EQ(reserved_for({1}), 2 * kMiB);
  EXPECT_EQ(reserved_for({kMiB, kMiB}), 2 * kMiB);
  EXPECT_EQ(reserved_for({kMiB, kMiB, 1}), 4 * kMiB);
  EXPECT_EQ(reserved_for({kMiB + 1}), 20 * kMiB);
  EXPECT_EQ(reserved_for({10 * kMiB - 512, 10 * kMiB - 512}), 20 * kMiB);
  EXPECT_EQ(reserved_for({10 * kMiB}), 10 * kMiB);
  EXPECT_EQ(reserved_for({10 * kMiB + 1}), 12 * kMiB);
  EXPECT_EQ(reserved_for({2 * kMiB}, "large_segment_size_mb:32"), 32 * kMiB);
}

TEST(CachingAllocator, LeavesNoMoreThanAMebibyteUndividedOfALargeBlock) {
  CachingAllocator allocator;
  allocator.free(*allocator.allocate(12 * kMiB));
  const auto block = allocator.allocate(11 * kMiB);
  EXPECT_EQ(allocator.allocated(), 12 * kMiB);
  EXPECT_EQ(allocator.segments().front().size(), 1);
  allocator.free(*block);
  allocator.allocate(11 * kMiB - 512);
  EXPECT_EQ(allocator.allocated(), 11 * kMiB - 512);
  const std::vector<AllocatorBlock> divided = {{11 * kMiB - 512, true}, {kMiB + 512, false}};
  EXPECT_EQ(allocator.segments().front(), divided);
}

TEST(CachingAllocator, TakesTheSmallestFreeBlockThatIsLargeEnough) {
  CachingAllocator allocator;
  const auto large = allocator.allocate(40 * kMiB);
  const auto fitting = allocator.allocate(30 * kMiB);
  allocator.free(*large);
  allocator.free(*fitting);
  EXPECT_EQ(allocator.allocate(25 * kMiB), fitting);
  EXPECT_EQ(allocator.allocate(25 * kMiB), large);
  EXPECT_EQ(allocator.reserved(), 70 * kMiB);
}

TEST(CachingAllocator, JoinsFreeNeighbours) {
  CachingAllocator allocator;
  const auto a = allocator.allocate(6 * kMiB), b = allocator.allocate(6 * kMiB), c = allocator.allocate(6 * kMiB);
  allocator.free(*a);
  allocator.free(*c);
  EXPECT_EQ(allocator.segments().front().size(), 3);  // c, with the rest
  allocator.free(*b);
  EXPECT_EQ(allocator.segments().front(), (std::vector<AllocatorBlock>{{20 * kMiB, false}}));
  EXPECT_EQ(allocator.allocate(18 * kMiB), a);
}

TEST(CachingAllocator, ReleasesWholeSegmentsAlone) {
  CachingAllocator allocator;
  const auto small = allocator.allocate(512), whole = allocator.allocate(30 * kMiB),
             part = allocator.allocate(2 * kMiB);
  const auto other = allocator.allocate(2 * kMiB);
  allocator.free(*whole);
  allocator.free(*part);
  allocator.release_cached();
  EXPECT_EQ(allocator.reserved(), 22 * kMiB);
  allocator.free(*other);
  allocator.free(*small);
  allocator.release_cached();
  EXPECT_EQ(allocator.reserved(), 0);
  EXPECT_EQ(allocator.reserved_peak(), 52 * kMiB);
  allocator.reset_peaks();
  EXPECT_EQ(allocator.reserved_peak(), 0);
}

TEST(CachingAllocator, ReleasesWhatIsCachedBeforeItRefuses) {
  CachingAllocator allocator;
  allocator.set_limit(50 * kMiB);
  const auto first = allocator.allocate(30 * kMiB);
  EXPECT_FALSE(allocator.allocate(22 * kMiB));
  EXPECT_EQ(allocator.retries(), 1);
  allocator.free(*first);
  EXPECT_TRUE(allocator.allocate(40 * kMiB));
  EXPECT_EQ(allocator.reserved(), 40 * kMiB);
  EXPECT_EQ(allocator.retries(), 2);
}

TEST(CachingAllocator, DoesNotDivideBlocksFromTheLargestSplitOn) {
  CachingAllocator allocator(parse_allocator_settings("max_split_size_mb:32"));
  const auto large = allocator.allocate(64 * kMiB);
  allocator.free(*large);
  allocator.allocate(16 * kMiB);
  EXPECT_EQ(allocator.reserved(), 80 * kMiB);
  EXPECT_EQ(allocator.allocate(50 * kMiB), large);  // as a whole
  EXPECT_EQ(allocator.allocated(), 80 * kMiB);
  allocator.free(*large);
  allocator.allocate(40 * kMiB);  // 64 MiB are 20 MiB too many
  EXPECT_EQ(allocator.reserved(), 120 * kMiB);
}

TEST(CachingAllocator, RoundsUpToPartsOfAPowerOfTwo) {
  EXPECT_EQ(allocated_for(5 * kMiB + 1, "roundup_power2_divisions:4"), 6 * kMiB);
  EXPECT_EQ(allocated_for(4 * kMiB, "roundup_power2_divisions:4"), 4 * kMiB);
  EXPECT_EQ(allocated_for(2000, "roundup_power2_divisions:4"), 2048);
  EXPECT_EQ(allocated_for(9 * kMiB, "roundup_power2_divisions:[4:8,8:2,>:4]"), 12 * kMiB);
  EXPECT_EQ(allocated_for(17 * kMiB, "roundup_power2_divisions:[4:8,8:2,>:4]"), 20 * kMiB);
}

TEST(CachingAllocator, ExpandableSegmentsGrowAndShrinkByPages) {
  CachingAllocator allocator(parse_allocator_settings("expandable_segments:True"));
  const auto a = allocator.allocate(12 * kMiB), b = allocator.allocate(12 * kMiB), c = allocator.allocate(12 * kMiB);
  EXPECT_EQ(allocator.reserved(), 40 * kMiB);
  EXPECT_EQ(*c - *a, 24 * kMiB);
  EXPECT_EQ(allocator.segments().size(), 1);
  allocator.free(*a);
  allocator.free(*b);
  allocator.release_cached();  // the first page; b's is c's too
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  EXPECT_EQ(allocator.allocate(22 * kMiB), a);
  EXPECT_EQ(allocator.reserved(), 40 * kMiB);
  allocator.free(*a);
  allocator.free(*c);
  allocator.release_cached();
  EXPECT_EQ(allocator.reserved(), 0);
  EXPECT_TRUE(allocator.segments().empty());
}

/// Whatever is asked, blocks cover their segments, no two free ones lie side by side, and the sums are right.
TEST(CachingAllocator, KeepsItsBooksUnderRandomRequests) {
  for (const char* settings : {"", "max_split_size_mb:24", "expandable_segments:True", "roundup_power2_divisions:8"}) {
    CachingAllocator allocator(parse_allocator_settings(settings));
    allocator.set_limit(200 * kMiB);
    const bool expandable = parse_allocator_settings(settings).expandable_segments;
    std::mt19937 random(1);
    std::vector<int64_t> blocks;
    for (int i = 0; i < 3000; ++i) {
      if (!blocks.empty() && random() % 2 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        allocator.free(blocks.back());
        blocks.pop_back();
      } else if (const auto block =
                     allocator.allocate(1 + static_cast<int64_t>(random() % (24 * kMiB)) / (1 + random() % 40))) {
        blocks.push_back(*block);
      }
      int64_t reserved = 0, allocated = 0;
      size_t in_use = 0;
      for (const AllocatorSegment& segment : allocator.segments()) {
        bool was_free = false;
        for (const AllocatorBlock& block : segment) {
          ASSERT_GT(block.bytes, 0);
          ASSERT_FALSE(was_free && !block.in_use);
          was_free = !block.in_use;
          reserved += block.bytes;
          if (block.in_use) allocated += block.bytes;
          in_use += block.in_use ? 1 : 0;
        }
      }
      ASSERT_EQ(reserved, allocator.reserved());
      ASSERT_EQ(allocated, allocator.allocated());
      ASSERT_EQ(in_use, blocks.size());
      // Of an expandable segment whole pages are mapped, whatever the limit: PyTorch does so too.
      ASSERT_LE(reserved, allocator.limit() + (expandable ? 20 * kMiB : 0));
    }
    for (const int64_t block : blocks) allocator.free(block);
    allocator.release_cached();
    EXPECT_EQ(allocator.reserved(), 0) << settings;
  }
}

TEST(AllocatorSettings, Read) {
  EXPECT_EQ(parse_allocator_settings(""), AllocatorSettings());
  EXPECT_EQ(parse_allocator_settings("backend:native,pinned_use_background_threads:True"), AllocatorSettings());
  const AllocatorSettings settings =
      parse_allocator_settings("max_split_size_mb:128, max_non_split_rounding_mb:40,large_segment_size_mb:64");
  EXPECT_EQ(settings.max_split, 128 * kMiB);
  EXPECT_EQ(settings.max_rounding, 40 * kMiB);
  EXPECT_EQ(settings.large_segment, 64 * kMiB);
  EXPECT_TRUE(parse_allocator_settings("expandable_segments:True").expandable_segments);
  const std::array<int64_t, 16> by_size = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
  EXPECT_EQ(parse_allocator_settings("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").roundup_divisions, by_size);
}

TEST(AllocatorSettings, WhatIsNotModelledIsRefusedByName) {
  const auto message = [](const char* settings) -> std::string {
    try {
      parse_allocator_settings(settings);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("garbage_collection_threshold:0.8").find("garbage_collection_threshold is not"), std::string::npos);
  EXPECT_NE(message("per_process_memory_fraction:0.5").find("per_process_memory_fraction is not"), std::string::npos);
  EXPECT_NE(message("backend:cudaMallocAsync").find("only native is modelled"), std::string::npos);
  EXPECT_NE(message("expandable_segments:True,max_split_size_mb:64").find("together with"), std::string::npos);
  EXPECT_NE(message("max_split_size_mb").find("':' is missing"), std::string::npos);
  EXPECT_NE(message("max_split_size_mb:many").find("max_split_size_mb is 'many'"), std::string::npos);
  EXPECT_NE(message("expandable_segments:yes").find("neither True nor False"), std::string::npos);
  EXPECT_NE(message("roundup_power2_divisions:3").find("no power of two"), std::string::npos);
  EXPECT_NE(message("max_split_size_mb:32 expandable_segments:True").find("is '32 expandable_segments'"),
            std::string::npos);
}

}  // namespace
}  // namespace remat::test
