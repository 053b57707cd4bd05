// src/record/stream_uses.h -- on which streams of a device the memory of recorded values is used.
//
// A stream's work runs later than the calls that queue it. Memory goes back to the stream that it was allocated on,
// whose next kernels may write to it while other streams still read. PyTorch's users keep a tensor until the streams
// that they know of have met; where remat frees a value earlier than autograd would, or reads it once more for a
// replay, nobody but remat knows.
#pragma once

#include <vector>

#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/util/flat_hash_map.h>

namespace remat {

/// Of one tape. Does nothing for devices without streams. Not thread-safe: protected by the tape's mutex.
class StreamUses {
 public:
  /// An operator has made the contents of `storage` on this thread's stream.
  void made(const c10::StorageImpl& storage, bool by_replay = false);
  /// An operator that is about to run reads or writes it on this thread's stream. Where a replay made it on another
  /// one, this thread's waits for that first.
  void used(const c10::StorageImpl& storage);
  /// Its memory is about to be freed by the record: it is not reused before those streams have done what they have been
  /// given so far.
  void freed(const c10::StorageImpl& storage) noexcept;

 private:
  struct Uses {
    std::vector<c10::Stream> streams;  ///< each once; the first has made it, unless it is a leaf
    bool leaf = true;
    bool by_replay = false;
  };
  ska::flat_hash_map<const c10::StorageImpl*, Uses> uses_;
};

}  // namespace remat
