#include "tiers/checked_transfer.h"

#include <algorithm>
#include <cstring>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace remat::tiers {
namespace {

constexpr int64_t kAlignment = UnnamedFile::kAlignment;

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAlignment == 0; }

/// Calls transfer(at, used, size, offset) for one part after another: `used` bytes of memory from `at` on, which take
/// `size` bytes of the file from `offset` on. Returns what the first call that failed did.
template <class Transfer>
std::string in_parts(UnnamedFile& file, const std::vector<Extent>& extents, int64_t bytes, const Transfer& transfer) {
  int64_t at = 0;
  for (const auto& extent : extents) {
    for (int64_t done = 0; done < extent.bytes && at < bytes;) {
      int64_t used = std::min({TransferBuffer::kBytes, extent.bytes - done, bytes - at});
      // What is no whole block comes last, by itself.
      if (used > kAlignment) used -= used % kAlignment;
      const int64_t size = file.is_direct() ? (used + kAlignment - 1) / kAlignment * kAlignment : used;
      if (auto reason = transfer(at, used, size, extent.offset + done); !reason.empty()) return reason;
      at += used;
      done += used;
    }
    file.leave_page_cache(extent.bytes, extent.offset);
  }
  return {};
}

}  // namespace

TransferBuffer::TransferBuffer()
    : data_(static_cast<char*>(std::aligned_alloc(kAlignment, static_cast<size_t>(kBytes))), &std::free) {
  if (data_ == nullptr) throw std::bad_alloc();
}

std::string write_checked(UnnamedFile& file, const std::vector<Extent>& extents, const void* data, int64_t bytes,
                          const TransferBuffer& buffer, uint64_t& checksum) {
  XXH3_state_t sum;
  XXH3_64bits_reset(&sum);
  auto reason = in_parts(file, extents, bytes, [&](int64_t at, int64_t used, int64_t size, int64_t offset) {
    const char* from = static_cast<const char*>(data) + at;
    XXH3_64bits_update(&sum, from, static_cast<size_t>(used));
    if (file.is_direct() && (used != size || !is_aligned(from))) {
      std::memcpy(buffer.data(), from, static_cast<size_t>(used));
      std::memset(buffer.data() + used, 0, static_cast<size_t>(size - used));
      from = buffer.data();
    }
    return file.write(from, size, offset);
  });
  checksum = XXH3_64bits_digest(&sum);
  return reason;
}

std::string read_checked(UnnamedFile& file, const std::vector<Extent>& extents, void* to, int64_t bytes,
                         const TransferBuffer& buffer, uint64_t checksum) {
  XXH3_state_t sum;
  XXH3_64bits_reset(&sum);
  auto reason = in_parts(file, extents, bytes, [&](int64_t at, int64_t used, int64_t size, int64_t offset) {
    char* const into = static_cast<char*>(to) + at;
    const bool through_buffer = file.is_direct() && (used != size || !is_aligned(into));
    auto failed = file.read(through_buffer ? buffer.data() : into, size, offset);
    if (!failed.empty()) return failed;
    if (through_buffer) std::memcpy(into, buffer.data(), static_cast<size_t>(used));
    XXH3_64bits_update(&sum, into, static_cast<size_t>(used));
    return failed;
  });
  if (!reason.empty()) return reason;
  if (XXH3_64bits_digest(&sum) != checksum) return "they are not the bytes that were written: the checksum differs";
  return {};
}

}  // namespace remat::tiers
