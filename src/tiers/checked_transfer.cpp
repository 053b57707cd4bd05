#include "tiers/checked_transfer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace remat::tiers {
namespace {

constexpr int64_t kAlignment = UnnamedFile::kAlignment;
static_assert(TransferBuffer::kBytes >= 2 * kAlignment, "a rest fits the buffer");

int64_t past_boundary(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % kAlignment);
}
int64_t whole_blocks(int64_t bytes) { return bytes - bytes % kAlignment; }

/// `bytes` of memory in the file's order: whole blocks of it, `head` bytes from its beginning on; then the rest, which
/// is the head and the tail.
struct Order {
  Order(int64_t bytes, int64_t head, bool direct)
      : head(head), blocks(direct ? whole_blocks(bytes - head) : bytes), rest(bytes - blocks) {}

  int64_t head;
  int64_t blocks, rest;  ///< bytes
};

/// Calls transfer(at, size, offset) for one part after another of those bytes of a piece that begin at `begin`: `size`
/// of them from `at` on, which stand in the file from `offset` on. Returns what the first call that failed did.
template <class Transfer>
std::string in_parts(const std::vector<Extent>& extents, int64_t begin, int64_t bytes, const Transfer& transfer) {
  int64_t at = begin;
  for (const auto& extent : extents) {
    if (begin >= extent.bytes) {
      begin -= extent.bytes;
      continue;
    }
    for (int64_t done = std::exchange(begin, 0); done < extent.bytes && bytes > 0;) {
      const int64_t size = std::min({TransferBuffer::kBytes, extent.bytes - done, bytes});
      if (auto reason = transfer(at, size, extent.offset + done); !reason.empty()) return reason;
      at += size;
      done += size;
      bytes -= size;
    }
  }
  return {};
}

/// The rest fills whole blocks.
int64_t rest_in_file(const Order& order) { return (order.rest + kAlignment - 1) / kAlignment * kAlignment; }

void leave_page_cache(UnnamedFile& file, const std::vector<Extent>& extents) {
  for (const auto& extent : extents) file.leave_page_cache(extent.bytes, extent.offset);
}

}  // namespace

TransferBuffer::TransferBuffer()
    : data_(static_cast<char*>(std::aligned_alloc(kAlignment, static_cast<size_t>(kBytes))), &std::free) {
  if (data_ == nullptr) throw std::bad_alloc();
}

std::string write_checked(UnnamedFile& file, const std::vector<Extent>& extents, const void* data, int64_t bytes,
                          const TransferBuffer& buffer, Written& written) {
  const char* const from = static_cast<const char*>(data);
  const int64_t to_boundary = (kAlignment - past_boundary(from)) % kAlignment;
  written.head = file.is_direct() ? std::min(to_boundary, bytes) : 0;
  const Order order(bytes, written.head, file.is_direct());
  XXH3_state_t sum;
  XXH3_64bits_reset(&sum);
  auto reason = in_parts(extents, 0, order.blocks, [&](int64_t at, int64_t size, int64_t offset) {
    const char* const part = from + order.head + at;
    XXH3_64bits_update(&sum, part, static_cast<size_t>(size));
    return file.write(part, size, offset);
  });
  if (reason.empty() && order.rest > 0) {
    const auto head = static_cast<size_t>(order.head), rest = static_cast<size_t>(order.rest);
    std::memcpy(buffer.data(), from, head);
    std::memcpy(buffer.data() + head, from + order.head + order.blocks, rest - head);
    std::memset(buffer.data() + rest, 0, static_cast<size_t>(rest_in_file(order)) - rest);
    XXH3_64bits_update(&sum, buffer.data(), rest);
    reason = in_parts(extents, order.blocks, rest_in_file(order), [&](int64_t at, int64_t size, int64_t offset) {
      return file.write(buffer.data() + (at - order.blocks), size, offset);
    });
  }
  leave_page_cache(file, extents);
  written.checksum = XXH3_64bits_digest(&sum);
  return reason;
}

std::string read_checked(UnnamedFile& file, const std::vector<Extent>& extents, void* to, int64_t bytes,
                         const TransferBuffer& buffer, const Written& written) {
  char* const into = static_cast<char*>(to);
  const Order order(bytes, written.head, file.is_direct());
  const bool through_buffer = file.is_direct() && past_boundary(into + order.head) != 0;
  XXH3_state_t sum;
  XXH3_64bits_reset(&sum);
  auto reason = in_parts(extents, 0, order.blocks, [&](int64_t at, int64_t size, int64_t offset) {
    char* const part = into + order.head + at;
    auto failed = file.read(through_buffer ? buffer.data() : part, size, offset);
    if (!failed.empty()) return failed;
    if (through_buffer) std::memcpy(part, buffer.data(), static_cast<size_t>(size));
    XXH3_64bits_update(&sum, part, static_cast<size_t>(size));
    return failed;
  });
  if (reason.empty() && order.rest > 0) {
    reason = in_parts(extents, order.blocks, rest_in_file(order), [&](int64_t at, int64_t size, int64_t offset) {
      return file.read(buffer.data() + (at - order.blocks), size, offset);
    });
    const auto head = static_cast<size_t>(order.head), rest = static_cast<size_t>(order.rest);
    std::memcpy(into, buffer.data(), head);
    std::memcpy(into + order.head + order.blocks, buffer.data() + head, rest - head);
    XXH3_64bits_update(&sum, buffer.data(), rest);
  }
  leave_page_cache(file, extents);
  if (!reason.empty()) return reason;
  if (XXH3_64bits_digest(&sum) != written.checksum)
    return "they are not the bytes that were written: the checksum differs";
  return {};
}

}  // namespace remat::tiers
