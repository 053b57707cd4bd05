#include "tape/checksums.h"

#include "device/device.h"
#include "tape/checksum.h"

namespace remat {

template <class Use>
auto Checksums::on_device(const c10::StorageImpl& storage, Use use) {
  const int64_t before = deferred.bytes();
  streams_.used(storage, /*for_record=*/true);
  const auto result = use();
  if (takes_memory) takes_memory(storage.device(), deferred.bytes() - before);
  return result;
}

uint64_t Checksums::take(const c10::StorageImpl& storage, ByteRange range, bool sample) {
  if (device::is_on_host(storage)) return checksum(storage, range);
  return on_device(storage, [&] { return deferred.take(storage, range, sample); });
}

bool Checksums::match(uint64_t known, const c10::StorageImpl& storage, ByteRange range,
                      const std::function<std::string()>& message, const OperatorInfo* replayed) {
  if (!DeferredChecksums::is_deferred(known)) return known != 0 && known == checksum(storage, range);
  return on_device(storage, [&] { return deferred.expect(known, storage, range, message(), replayed); });
}

}  // namespace remat
