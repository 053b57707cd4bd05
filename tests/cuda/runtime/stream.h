// tests/cuda/runtime/stream.h -- a stream of the simulated CUDA runtime: a thread that does what was submitted, in
// order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "runtime/runtime.h"

/// CUDA's headers leave this type to the runtime. Never destroyed: its thread may have work when the process ends.
struct CUstream_st {
 public:
  CUstream_st(int device, int priority) : device_(device), priority_(priority) {}

  void submit(std::function<void()> work);
  /// Returns when all that was submitted is done.
  void synchronize();
  bool is_idle();
  int device() const { return device_; }
  int priority() const { return priority_; }

 private:
  void run();

  const int device_;
  const int priority_;
  std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> work_;
  bool is_busy_ = false;
  bool has_thread_ = false;  // streams are made by the dozen and seldom used
};

namespace remat::simulated_cuda {

/// Null and the two special handles (legacy, of the thread) are the current device's default stream.
CUstream_st& stream_of(cudaStream_t stream);

/// Waits for every stream of the device.
void synchronize(int device);

}  // namespace remat::simulated_cuda
