// src/tape/stream_uses.h -- on which streams of a device the memory of recorded values is used.
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
  /// An operator has made the contents of `storage` on this thread's stream; `by_record`: one that the record called.
  void made(const c10::StorageImpl& storage, bool by_record = false);
  /// An operator that is about to run reads or writes it on this thread's stream. Where the record has made it on
  /// another one, by a replay or as a copy, this thread's waits for that first. `for_record`: by the record itself, a
  /// replay or a look at the contents, of which whoever else frees the memory knows nothing.
  void used(const c10::StorageImpl& storage, bool for_record = false);
  /// Its contents are about to be read by the host, on this thread's stream: that waits for all others.
  void look_at(const c10::StorageImpl& storage);
  /// Nothing is known of it: it may be where another one was, which is gone.
  void forget(const c10::StorageImpl& storage);
  /// Its memory is about to be freed by the record: it is not reused before those streams have done what they have been
  /// given so far.
  void freed(const c10::StorageImpl& storage) noexcept;

 private:
  struct Uses {
    std::vector<c10::Stream> streams;  ///< each once; the first has made it, unless it is a leaf
    std::vector<c10::Stream> told;     ///< those of which the allocator was told while it is alive
    bool leaf = true;
    bool by_record = false;
  };
  ska::flat_hash_map<const c10::StorageImpl*, Uses> uses_;
};

}  // namespace remat
