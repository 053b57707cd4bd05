// src/tiers/move_target.h -- where values of a step are moved to, and come back from: a file, or a device's host
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat::tiers {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

/// Contents of one storage that are in the other memory, or on their way. Functions may be called by several threads;
/// one reads at a time.
///
/// On a device with streams nothing waits but the stream that this thread uses: what it is given next begins later.
class MovedContents {
 public:
  /// Gives its place back, once what is in progress is over.
  virtual ~MovedContents() = default;
  MovedContents() = default;
  MovedContents(const MovedContents&) = delete;
  MovedContents& operator=(const MovedContents&) = delete;

  /// Waits for the copy out. False: it has failed, or there was no room.
  virtual bool wait_written() = 0;
  /// Is that over, so that it takes no time?
  virtual bool is_written() const = 0;
  /// Begins to copy into `memory`, which stays allocated until wait_read() has returned.
  virtual void begin_read(const StoragePtr& memory) = 0;
  /// Waits for that. False: the contents are lost, and the memory holds anything.
  virtual bool wait_read() = 0;
  /// Why it was false.
  virtual std::string error() const = 0;
};

class MoveTarget {
 public:
  virtual ~MoveTarget() = default;
  MoveTarget() = default;
  MoveTarget(const MoveTarget&) = delete;
  MoveTarget& operator=(const MoveTarget&) = delete;

  /// Can contents of this storage be moved now?
  virtual bool takes(const c10::StorageImpl& storage) const = 0;
  /// Begins to copy the first `bytes` of `from`, which stays allocated and unchanged until wait_written() has returned
  /// or what is returned is destroyed.
  virtual std::shared_ptr<MovedContents> write(const StoragePtr& from, int64_t bytes) = 0;
  /// New memory for contents to come back into. Throws what the allocator throws.
  virtual StoragePtr allocate(int64_t bytes) const = 0;
  /// For messages: "the disk".
  virtual std::string name() const = 0;
};

}  // namespace remat::tiers
