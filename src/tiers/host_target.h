// src/tiers/host_target.h -- values of a device that are moved to pinned host memory, by a stream of its own.
//
// The copies' stream waits for the one that made the contents, and that of whoever needs the copy waits for it: by
// events, so that the host goes on. Memory that a copy has left is free for what its stream is given afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "tiers/move_target.h"

namespace remat::tiers {

class HostTarget final : public MoveTarget, public std::enable_shared_from_this<HostTarget> {
 public:
  /// Values of `device`, which has streams. Pinned memory of theirs never has more than `limit_bytes`, as PyTorch's
  /// allocator takes it: powers of two, and what it keeps for others to come. Its end gives back what is kept.
  HostTarget(c10::Device device, int64_t limit_bytes);
  ~HostTarget() override;
  HostTarget(const HostTarget&) = delete;
  HostTarget& operator=(const HostTarget&) = delete;

  bool takes(const c10::StorageImpl& storage) const override;
  std::shared_ptr<MovedContents> write(const StoragePtr& from, int64_t bytes) override;
  StoragePtr allocate(int64_t bytes) const override;
  std::string name() const override { return "the host's memory"; }

  int64_t bytes_in_use() const { return in_use_; }

 private:
  class InHostMemory;

  void give_back_unused() const;  ///< pinned memory, to the system

  const c10::Device device_;
  const int64_t limit_bytes_;
  const c10::Stream copies_;  ///< the stream
  const int forks_;
  std::atomic<int64_t> in_use_ = 0;
};

}  // namespace remat::tiers
