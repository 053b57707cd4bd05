// cli/checkpoint_lock.h -- one training at a time for one checkpoint file.
#pragma once

#include <string>

#include <sys/types.h>

namespace remat::cli {

/// Holds the checkpoint at a path, which need not exist yet, for this process: a lock (flock) on a file beside it,
/// PATH.lock, that is gone when this is. The system lets go of the lock when the process ends, however it does; a file
/// that is left then holds nothing. Where the file system has no locks, or nothing can be written, nothing is held.
class CheckpointLock {
 public:
  /// Throws Error where another run holds it. Removes what runs that were killed left beside it, half written.
  explicit CheckpointLock(const std::string& path);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

 private:
  std::string file_path_;
  pid_t holder_;  ///< not its copies, which fork() makes
  int file_ = -1;
};

}  // namespace remat::cli
