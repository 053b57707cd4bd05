// src/device/delegating_cuda_allocator.h -- a CUDA allocator that hands every call to another one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

namespace remat::memory {

/// For a class that changes a few functions: one that is not handed on would have the base class's answer, mostly that
/// it is not supported. PyTorch's class grows with its versions; those of 2.13 and 2.14 are handed on in full.
class DelegatingCudaAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  explicit DelegatingCudaAllocator(CUDAAllocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void* raw_alloc(size_t bytes) override { return inner_.raw_alloc(bytes); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return inner_.raw_alloc_with_stream(bytes, stream);
  }
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return inner_.allocateWithAddress(bytes, address);
  }
  void raw_delete(void* data) override { inner_.raw_delete(data); }
  c10::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return inner_.is_simple_data_ptr(data); }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_.copy_data(to, from, bytes); }

  bool initialized() override { return inner_.initialized(); }
  void init(int devices) override { inner_.init(devices); }
  void enable(bool value) override { inner_.enable(value); }
  bool isEnabled() const override { return inner_.isEnabled(); }
  std::string name() override { return inner_.name(); }
  void emptyCache(c10::MempoolId_t pool) override { inner_.emptyCache(pool); }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    inner_.recordStream(data, stream);
  }
  void enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) override { inner_.enablePeerAccess(from, to); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool peer_to_peer) override {
    return inner_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peer_to_peer);
  }

  double getMemoryFraction(c10::DeviceIndex device) override { return inner_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    inner_.setMemoryFraction(fraction, device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return inner_.getMemoryInfo(device); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return inner_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { inner_.resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { inner_.resetPeakStats(device); }
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override { inner_.cacheInfo(device, largest); }
  void* getBaseAllocation(void* data, size_t* bytes) override { return inner_.getBaseAllocation(data, bytes); }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override {
    return inner_.getExpandableSegmentSizes(device);
  }
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override {
    return inner_.snapshot(pool, traces);
  }

  // Pools and graphs.
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    inner_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    inner_.endAllocateToPool(device, pool);
  }
  void markCaptureBegin(c10::DeviceIndex device) override { inner_.markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { inner_.markCaptureEnd(device); }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override { inner_.releasePool(device, pool); }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return inner_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    inner_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override {
    inner_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override { inner_.setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return inner_.checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                                      c10::MempoolId_t pool) override {
    return inner_.getCheckpointState(device, pool);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return inner_.setCheckpointPoolState(device, std::move(state));
  }

  // Between processes.
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* data) override {
    return inner_.shareIpcHandle(data);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return inner_.getIpcDevPtr(std::move(handle)); }

  // Histories, and who is told.
  bool isHistoryEnabled() override { return inner_.isHistoryEnabled(); }
  void recordHistory(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context, size_t entries,
                     c10::CachingDeviceAllocator::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    inner_.recordHistory(enabled, context, entries, when, clear, skip);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    inner_.recordAnnotation(annotation);
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* data) override {
    return inner_.getContextForPointer(data);
  }
  void pushCompileContext(std::string& context) override { inner_.pushCompileContext(context); }
  void popCompileContext() override { inner_.popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { inner_.setUserMetadata(metadata); }
  std::string getUserMetadata() override { return inner_.getUserMetadata(); }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  bool supportsUserMetadata() override { return inner_.supportsUserMetadata(); }
  void annotateMemory(const void* data, const std::string& metadata) override { inner_.annotateMemory(data, metadata); }
#endif
  void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    inner_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override {
    inner_.attachOomRejectionObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override {
    inner_.attachAllocatorTraceTracker(std::move(tracker));
  }

 protected:
  CUDAAllocator& inner() const noexcept { return inner_; }

 private:
  CUDAAllocator& inner_;
};

}  // namespace remat::memory
