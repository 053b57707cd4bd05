#include "device/pinned_memory.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "device/stream.h"

namespace remat::simulated {
namespace {

/// What malloc gave.
class HostRanges {
 public:
  void insert(const void* address, size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[static_cast<const char*>(address)] = bytes;
  }
  void erase(const void* address) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(static_cast<const char*>(address));
  }
  bool contains(const void* address) const {
    const std::lock_guard lock(mutex_);
    const char* at = static_cast<const char*>(address);
    const auto after = ranges_.upper_bound(at);
    return after != ranges_.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

HostRanges& ranges() {
  static auto* const all = new HostRanges;
  return *all;
}

class PinnedBlocks final : public at::CachingHostAllocatorImpl<c10::Stream, c10::Event> {
  void allocate_host_memory(size_t bytes, void** address) override {
    TORCH_CHECK(posix_memalign(address, 4096, bytes) == 0, "[simulated] the host has no ", bytes, " bytes left");
    ranges().insert(*address, bytes);
  }
  void free_block(at::HostBlock<c10::Stream>* block) override {
    ranges().erase(block->ptr_);
    std::free(block->ptr_);
  }
  void record_stream(std::optional<std::vector<c10::Event>>& events, c10::Stream stream) override {
    c10::Event event(c10::kPrivateUse1);
    event.record(stream);
    events->push_back(std::move(event));
  }
  bool query_event(c10::Event& event) override { return event.query(); }
  c10::Stream get_current_stream() const override { return current_stream(current_device()); }
  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }
};

void free_pinned(void* block);

using PinnedAllocator = at::CachingHostAllocatorInterface<PinnedBlocks, free_pinned>;

PinnedAllocator& allocator() {
  static auto* const only = new PinnedAllocator;
  return *only;
}

void free_pinned(void* block) { allocator().free(block); }

}  // namespace

at::HostAllocator& pinned_allocator() { return allocator(); }

bool is_pinned(const void* address) { return ranges().contains(address); }

}  // namespace remat::simulated
