// src/tape/checksums.h -- checksums of the contents that a tape has to recognise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tape/deferred_checksums.h"
#include "tape/stream_uses.h"

namespace remat {

/// Of one tape: on the host known at once, on devices when the step is over. Not thread-safe: protected by the tape's
/// mutex.
class Checksums {
 public:
  explicit Checksums(StreamUses& streams) : streams_(streams) {}

  /// Of contents as this thread's stream has them; 0 where there can be none. `sample`: of a part, where the host does
  /// not see them.
  uint64_t take(const c10::StorageImpl& storage, ByteRange range, bool sample = false);
  /// Have contents that checksum? Of a device's the answer is yes, and the step's end throws Error(message()) if that
  /// was wrong; no where it cannot be told. `replayed`: a replay of that operator has made them.
  bool match(uint64_t checksum, const c10::StorageImpl& storage, ByteRange range,
             const std::function<std::string()>& message, const OperatorInfo* replayed = nullptr);
  /// Have they another? Where it cannot be told, no.
  bool differ(uint64_t checksum, const c10::StorageImpl& storage, ByteRange range,
              const std::function<std::string()>& message, const OperatorInfo* replayed = nullptr) {
    return !match(checksum, storage, range, message, replayed) && !DeferredChecksums::is_deferred(checksum);
  }

  DeferredChecksums deferred;
  /// Is told how many bytes more of a device's memory they take, if it is set.
  std::function<void(c10::Device, int64_t)> takes_memory;

 private:
  /// Around what uses the device that `storage` is on.
  template <class Use>
  auto on_device(const c10::StorageImpl& storage, Use use);

  StreamUses& streams_;
};

}  // namespace remat
