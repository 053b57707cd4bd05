// Events of the simulated CUDA runtime.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "runtime/runtime.h"
#include "runtime/stream.h"

namespace remat::simulated_cuda {

/// A place in a stream's work.
class Recording {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    is_reached_ = true;
    at_ = std::chrono::steady_clock::now();
    reached_.notify_all();
  }
  bool is_reached() {
    const std::lock_guard lock(mutex_);
    return is_reached_;
  }
  std::chrono::steady_clock::time_point wait() {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this] { return is_reached_; });
    return at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  bool is_reached_ = false;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace remat::simulated_cuda

/// CUDA's headers leave this type to the runtime. Recorded anew, those that wait for its last recording go on doing so.
struct CUevent_st {
  std::shared_ptr<remat::simulated_cuda::Recording> recording;
};

using namespace remat::simulated_cuda;

REMAT_CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st{};
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

REMAT_CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned /*flags*/) {
  event->recording = std::make_shared<Recording>();
  stream_of(stream).submit([recording = event->recording] { recording->reach(); });
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

REMAT_CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->recording == nullptr || event->recording->is_reached() ? cudaSuccess : cudaErrorNotReady;
}

REMAT_CUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->recording != nullptr) event->recording->wait();
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (from->recording == nullptr || to->recording == nullptr) return fail(cudaErrorInvalidValue);
  *milliseconds = std::chrono::duration<float, std::milli>(to->recording->wait() - from->recording->wait()).count();
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->recording == nullptr) return cudaSuccess;
  stream_of(stream).submit([recording = event->recording] { recording->wait(); });
  return cudaSuccess;
}
