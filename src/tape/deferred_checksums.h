// src/tape/deferred_checksums.h -- checksums of contents on a device, which its kernels compute later.
//
// The host does not wait for them: what a comparison says is known when the step is over. Each is a sum of the sums of
// the contents (as a block of 64-bit integers, along each of three dimensions), with a weight of its own for each. It
// takes memory for some sums, and reads the contents three times. Doubles of which, in every line of the block, an even
// number change their signs and nothing else may have the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "pytorch/tensor_view.h"

namespace remat {

struct OperatorInfo;

/// Of one tape. Not thread-safe: protected by the tape's mutex.
class DeferredChecksums {
 public:
  DeferredChecksums() = default;
  ~DeferredChecksums();
  DeferredChecksums(const DeferredChecksums&) = delete;
  DeferredChecksums& operator=(const DeferredChecksums&) = delete;

  /// Stands for that of a part of the storage, as this thread's stream has it now; 0 where there can be none.
  /// `sample`: of 64 bytes in 16 KiB.
  uint64_t take(const c10::StorageImpl& storage, ByteRange range, bool sample = false);
  /// Is it one that take() gave, and not memory::checksum_of()?
  static bool is_deferred(uint64_t checksum) { return checksum != 0 && checksum >> 63U == 0; }
  /// Has that part, as this thread's stream has it now, the same contents? Where not, resolve() throws Error(message).
  /// False if that cannot be told.
  /// `replayed`: a replay of that operator has made it, which is noted in what is known of it.
  bool expect(uint64_t checksum, const c10::StorageImpl& storage, ByteRange range, std::string message,
              const OperatorInfo* replayed = nullptr);

  /// The step is over. If it has `completed`, waits for them, and throws the message of the first comparison that
  /// failed. From now on expect() does so.
  void resolve(bool completed);
  /// Nothing that take() gave is asked for any more.
  void clear();
  /// Of the devices' memory, until then.
  int64_t bytes() const { return bytes_; }

 private:
  /// What one stream computes.
  struct Lane {
    c10::Stream stream;
    at::Tensor weights, sums, mixed;  ///< of as many elements, at least as the largest block has needed
    std::vector<at::Tensor> results;  ///< kResults each, but for the last
    uint32_t count = 0;               ///< of results
  };
  struct Taken {
    uint32_t lane = 0;
    uint32_t place = 0;  ///< among the lane's results
    bool sample = false;
  };
  struct Comparison {
    uint64_t before = 0, now = 0;
    std::string message;
    const OperatorInfo* replayed = nullptr;
  };
  class Sum;

  uint32_t lane_of(const c10::Stream& stream);
  void provide(Lane& lane, int64_t sums);

  std::vector<Lane> lanes_;
  std::vector<Taken> taken_;
  std::vector<Comparison> comparisons_;
  int64_t bytes_ = 0;
  bool at_once_ = false;
};

}  // namespace remat
