#include "tape/read_checksum.h"

#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "device/allocation.h"
#include "memory/fork.h"
#include "tape/checksum.h"

namespace remat {
namespace {

constexpr int64_t kLeastConstant = int64_t{64} * 1024;  // bytes: below it, to hash all takes no time
constexpr int kStepsToBeConstant = 3;                   // whose reads found it unchanged
constexpr size_t kMostEntries = 8192;
constexpr int64_t kLine = 64;
constexpr int64_t kSampleStep = int64_t{16} * 1024;  // bytes from one sampled line to the next

struct Entry {
  memory::Allocation allocation;
  int64_t bytes = 0;
  uint32_t version = 0;
  uint64_t step = 0;     ///< of the last read
  int steps = 0;         ///< that read it and found it as it was
  bool changes = false;  ///< it has been found changed: never a constant
  uint64_t sample = 0, checksum = 0;
};

struct Constants {
  Mutex mutex;
  std::unordered_map<const void*, Entry> entries REMAT_GUARDED_BY(mutex);  ///< by the first byte
};

Constants& constants() {
  static auto& constants = never_destroyed<Constants>();
  return constants;
}

/// Of a line every kSampleStep bytes, and of the last.
uint64_t sample_of(const std::byte* data, int64_t bytes) {
  std::array<std::byte, 32 * kLine> lines;
  uint64_t sum = 0;
  size_t filled = 0;
  const auto add = [&](const std::byte* line) {
    std::memcpy(lines.data() + filled, line, kLine);
    filled += kLine;
    if (filled < lines.size()) return;
    sum = sum * 31 + memory::checksum_of(lines.data(), filled);
    filled = 0;
  };
  for (int64_t at = 0; at + kLine <= bytes; at += kSampleStep) add(data + at);
  add(data + bytes - kLine);
  return sum * 31 + memory::checksum_of(lines.data(), filled);
}

const std::byte* first_byte(const c10::TensorImpl& tensor, const ByteRange& range) {
  return static_cast<const std::byte*>(storage_of(tensor)->data()) + range.begin;
}

}  // namespace

bool may_be_constant(const c10::TensorImpl& tensor) {
  const ByteRange range = reach_of(tensor);
  return range.end - range.begin >= kLeastConstant && c10::isFloatingType(c10::typeMetaToScalarType(tensor.dtype()));
}

uint64_t read_checksum(const c10::TensorImpl& tensor, uint64_t step) {
  const ByteRange range = reach_of(tensor);
  const int64_t bytes = range.end - range.begin;
  if (!may_be_constant(tensor) || step == 0) return checksum(tensor);
  const std::byte* const data = first_byte(tensor, range);
  Entry seen;
  seen.allocation = memory::allocation_of(*storage_of(tensor));
  seen.bytes = bytes;
  seen.version = tensor.version_counter().enabled() ? tensor.version_counter().current_version() : 0;
  seen.sample = sample_of(data, bytes);
  seen.step = step;
  const auto is_as = [&](const Entry& known) {
    return known.allocation.serial == seen.allocation.serial && known.allocation.data == seen.allocation.data &&
           known.bytes == seen.bytes && known.version == seen.version;
  };
  {
    const MutexLock lock(constants().mutex);
    const auto known = constants().entries.find(data);
    if (known != constants().entries.end() && is_as(known->second)) {
      const Entry& entry = known->second;
      seen.changes = entry.changes || entry.sample != seen.sample;
      if (!seen.changes && entry.steps >= kStepsToBeConstant) return entry.checksum;
    }
  }
  seen.checksum = checksum(tensor);
  const MutexLock lock(constants().mutex);
  auto& entries = constants().entries;
  if (entries.size() >= kMostEntries) entries.clear();
  Entry& entry = entries[data];
  const bool same_tensor = is_as(entry);
  if (same_tensor && entry.checksum != seen.checksum) seen.changes = true;
  if (!seen.changes) seen.steps = !same_tensor ? 1 : entry.steps + (step != entry.step ? 1 : 0);
  entry = seen;
  return seen.checksum;
}

void forget_constant(const c10::TensorImpl& tensor) {
  const std::byte* const data = first_byte(tensor, reach_of(tensor));
  const MutexLock lock(constants().mutex);
  if (const auto known = constants().entries.find(data); known != constants().entries.end()) {
    known->second.changes = true;
  }
}

}  // namespace remat
