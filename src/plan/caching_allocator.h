// src/plan/caching_allocator.h -- a model of PyTorch's caching allocator for CUDA devices: which segments it takes from
// a device for a sequence of requests. It has no memory; addresses are numbers, and newer segments have higher ones.
//
// It is that of torch 2.14 for the requests of one stream, outside of CUDA graphs and private pools:
// tests/cuda/allocator_test.py compares the two, block by block. (Of free blocks of one size older versions take that
// with the lowest address, which CUDA chooses, and not that of the oldest segment.)
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <remat/device_estimate.h>

namespace remat {

/// What PYTORCH_ALLOC_CONF sets, as far as it decides where blocks come to lie. Bytes.
struct AllocatorSettings {
  static constexpr int64_t kUnlimited = INT64_MAX;

  int64_t max_split = kUnlimited;             ///< larger blocks are not divided
  int64_t max_rounding = int64_t{20} << 20;   ///< by how much a block that is not divided may be too large
  int64_t large_segment = int64_t{20} << 20;  ///< taken for requests of 1 MiB to 10 MiB
  bool expandable_segments = false;
  /// By powers of two from 1 MiB on: into how many parts sizes up to the next power are divided. 0: not at all.
  std::array<int64_t, 16> roundup_divisions{};

  bool operator==(const AllocatorSettings&) const = default;
};

/// "max_split_size_mb:128,expandable_segments:True". Throws Error for what is not modelled, by its name, and for what
/// PyTorch would not take either.
AllocatorSettings parse_allocator_settings(std::string_view text);

/// Not thread-safe.
class CachingAllocator {
 public:
  explicit CachingAllocator(const AllocatorSettings& settings = {}) : settings_(settings) {}

  /// The address of a block of at least `bytes`, which are more than 0. None where the limit leaves no room, though
  /// what was cached has been released.
  std::optional<int64_t> allocate(int64_t bytes);
  /// `address`: of a block in use.
  void free(int64_t address);
  /// As torch.cuda.empty_cache().
  void release_cached();

  /// Of what is reserved. A lower one than that holds for what comes.
  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t limit() const { return limit_; }

  /// As torch.cuda.memory_allocated() and memory_reserved(), and the most of each since reset_peaks().
  int64_t allocated() const { return allocated_; }
  int64_t reserved() const { return reserved_; }
  int64_t allocated_peak() const { return allocated_peak_; }
  int64_t reserved_peak() const { return reserved_peak_; }
  void reset_peaks();
  /// How often cached memory had to be released before a segment was there, or none was.
  int64_t retries() const { return retries_; }
  /// What the next segment for a request of so many bytes adds to what is reserved, at most.
  int64_t segment_bytes(int64_t request) const;

  /// All of them, the oldest first; what is not mapped of an expandable one is left out.
  std::vector<AllocatorSegment> segments() const;

 private:
  enum class Use : uint8_t { kFree, kTaken, kUnmapped };
  struct Block {
    int64_t bytes = 0;
    int32_t segment = 0;  ///< blocks of different ones are never joined
    bool small = false;   ///< the pool
    Use use = Use::kFree;
  };
  using Blocks = std::map<int64_t, Block>;  ///< by address
  struct Pool {
    std::set<std::pair<int64_t, int64_t>> free;  ///< bytes, address
    std::set<int64_t> unmapped;                  ///< addresses
  };

  Pool& pool_of(const Block& block) { return pools_[block.small ? 1 : 0]; }
  int64_t rounded(int64_t bytes) const;
  std::optional<Blocks::iterator> find_free(bool small, int64_t bytes);
  std::optional<Blocks::iterator> take_segment(bool small, int64_t bytes);
  Blocks::iterator take_expandable(bool small, int64_t bytes);
  Blocks::iterator room_in_expandable(bool small, int64_t bytes);
  Blocks::iterator add(int64_t bytes, bool small, Use use);
  Blocks::iterator map(Blocks::iterator block, int64_t bytes);
  void unmap(Blocks::iterator block);
  bool release_oversized(bool small, int64_t bytes);
  void release(Blocks::iterator block);
  Blocks::iterator neighbour(Blocks::iterator block, bool before);
  Blocks::iterator divide(Blocks::iterator block, int64_t bytes);
  Blocks::iterator join(Blocks::iterator block);
  void list(Blocks::iterator block);
  void unlist(Blocks::iterator block);
  void change_reserved(int64_t bytes);

  const AllocatorSettings settings_;
  Blocks blocks_;
  std::array<Pool, 2> pools_;  ///< large, small
  int64_t limit_ = INT64_MAX, end_ = 0;
  int32_t segments_ = 0;
  int64_t allocated_ = 0, reserved_ = 0, allocated_peak_ = 0, reserved_peak_ = 0, retries_ = 0;
};

}  // namespace remat
