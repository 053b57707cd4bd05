#include "tiers/host_target.h"

#include <bit>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/device.h"
#include "device/storage_over.h"
#include "device/stream_copy.h"
#include "device/streams.h"
#include "memory/fork.h"

namespace remat::tiers {

using device::stream_of_thread;

namespace {

/// What PyTorch's allocator of pinned memory takes for `bytes`.
int64_t pinned_bytes(int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

}  // namespace

class HostTarget::InHostMemory final : public MovedContents {
 public:
  InHostMemory(std::shared_ptr<HostTarget> target, const StoragePtr& from, int64_t bytes)
      : target_(std::move(target)), bytes_(bytes) {
    const int64_t takes = pinned_bytes(bytes), before = target_->in_use_.fetch_add(takes);
    try {
      if (before + takes > target_->limit_bytes_) {
        error_ = std::to_string(bytes) + " bytes could not be moved to the host: they take " + std::to_string(takes) +
                 ", the limit is " + std::to_string(target_->limit_bytes_) + " bytes, of which " +
                 std::to_string(before) + " are in use";
        return;
      }
      at::HostAllocator& pinned = *at::getHostAllocator(target_->device_.type());
      memory_ = device::new_storage(static_cast<size_t>(bytes), pinned);
      // It keeps blocks of other sizes that nobody uses; one of this size would have been used.
      const at::HostStats stats = pinned.get_stats();
      const int64_t cached = stats.allocated_bytes.current - stats.active_bytes.current;
      if (before + takes + cached > target_->limit_bytes_) target_->give_back_unused();
      written_ = copy(memory_, from);
    } catch (const std::exception& failure) {
      error_ = std::to_string(bytes) + " bytes could not be moved to the host: " + failure.what();
      memory_.reset();
    }
  }
  ~InHostMemory() override {
    // The memory is the allocator's, and others', to use again.
    for (auto* const event : {&written_, &read_}) {
      if (!*event || forks_ != forks()) continue;  // a child of fork() has no device
      try {
        (*event)->synchronize();
      } catch (const std::exception&) {  // the device has failed: it says so to whoever asks it next
      }
    }
    target_->in_use_ -= pinned_bytes(bytes_);
  }

  bool wait_written() override {
    if (!memory_) return false;
    try {
      written_->block(stream_of_thread(target_->device_));
      return true;
    } catch (const std::exception& failure) {
      error_ = std::to_string(bytes_) + " bytes could not be moved to the host: " + failure.what();
      return false;
    }
  }
  bool is_written() const override {
    try {
      return !written_ || written_->query();
    } catch (const std::exception&) {
      return true;  // with an error, which wait_written() tells
    }
  }
  void begin_read(const StoragePtr& memory) override {
    const std::lock_guard lock(mutex_);
    reads_into_ = memory;
    for_stream_ = stream_of_thread(target_->device_);
    read_ = copy(memory, memory_);
  }
  bool wait_read() override {
    const c10::Stream stream = stream_of_thread(target_->device_);
    const std::lock_guard lock(mutex_);
    read_->block(stream);
    if (!reads_into_) return true;  // another thread was faster
    // The allocator gives it to work of the stream that it was allocated for.
    if (stream != *for_stream_) {
      c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(reads_into_->data_ptr(), stream);
    }
    reads_into_.reset();
    return true;
  }
  std::string error() const override { return error_; }

 private:
  /// Begins when the stream of this thread has come so far. Returns what is reached when it is done.
  c10::Event copy(const StoragePtr& to, const StoragePtr& from) const {
    device::wait_for(stream_of_thread(target_->device_), target_->copies_);
    const c10::StreamGuard in_stream(target_->copies_);
    device::copy_bytes(to, from, bytes_, target_->device_);
    return device::event_in(target_->copies_);
  }

  const std::shared_ptr<HostTarget> target_;
  const int64_t bytes_;
  const int forks_ = forks();
  std::string error_;
  StoragePtr memory_;  ///< null: it was not written
  std::mutex mutex_;   ///< of what reads
  StoragePtr reads_into_;
  std::optional<c10::Stream> for_stream_;  ///< that the memory which is read into was allocated for
  std::optional<c10::Event> written_, read_;
};

HostTarget::HostTarget(c10::Device device, int64_t limit_bytes)
    : device_(device),
      limit_bytes_(limit_bytes),
      copies_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      forks_(forks()) {}

HostTarget::~HostTarget() {
  if (forks_ != forks()) return;
  try {
    give_back_unused();
  } catch (const std::exception&) {  // the device has failed: it says so to whoever asks it next
  }
}

void HostTarget::give_back_unused() const {
  copies_.synchronize();  // the allocator keeps what a copy may still use
  at::getHostAllocator(device_.type())->empty_cache();
}

bool HostTarget::takes(const c10::StorageImpl& storage) const {
  return storage.device() == device_ && !device::kind_of(device_).is_captured();
}

std::shared_ptr<MovedContents> HostTarget::write(const StoragePtr& from, int64_t bytes) {
  return std::make_shared<InHostMemory>(shared_from_this(), from, bytes);
}

StoragePtr HostTarget::allocate(int64_t bytes) const {
  return device::new_storage(static_cast<size_t>(bytes), device_);
}

}  // namespace remat::tiers
