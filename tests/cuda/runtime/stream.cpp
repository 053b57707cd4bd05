#include "runtime/stream.h"

#include <array>
#include <thread>
#include <utility>
#include <vector>

namespace remat::simulated_cuda {
namespace {

std::mutex streams_mutex;

std::vector<CUstream_st*>& all_streams() {
  static auto* const streams = new std::vector<CUstream_st*>;
  return *streams;
}

CUstream_st* make_stream(int device, int priority) {
  auto* const stream = new CUstream_st(device, priority);
  const std::lock_guard lock(streams_mutex);
  all_streams().push_back(stream);
  return stream;
}

CUstream_st& default_stream(int device) {
  static std::mutex mutex;
  static std::array<CUstream_st*, kMostDevices> streams{};
  const std::lock_guard lock(mutex);
  CUstream_st*& stream = streams.at(static_cast<size_t>(device));
  if (stream == nullptr) stream = make_stream(device, 0);
  return *stream;
}

}  // namespace

CUstream_st& stream_of(cudaStream_t stream) {
  const bool is_special = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_special ? default_stream(current_device()) : *stream;
}

void synchronize(int device) {
  std::vector<CUstream_st*> streams;
  {
    const std::lock_guard lock(streams_mutex);
    streams = all_streams();
  }
  for (CUstream_st* const stream : streams) {
    if (stream->device() == device) stream->synchronize();
  }
}

}  // namespace remat::simulated_cuda

using namespace remat::simulated_cuda;

void CUstream_st::submit(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_thread_, true)) std::thread([this] { run(); }).detach();
  work_.push_back(std::move(work));
  submitted_.notify_one();
}

void CUstream_st::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return !work_.empty(); });
    auto work = std::move(work_.front());
    work_.pop_front();
    is_busy_ = true;
    lock.unlock();
    work();
    work = nullptr;  // what it holds is gone before anyone is told that it is done
    lock.lock();
    is_busy_ = false;
    if (work_.empty()) idle_.notify_all();
  }
}

bool CUstream_st::is_idle() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !is_busy_;
}

void CUstream_st::synchronize() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return work_.empty() && !is_busy_; });
}

REMAT_CUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int priority) {
  *stream = make_stream(current_device(), priority);
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

REMAT_CUDA_API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

REMAT_CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }

REMAT_CUDA_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority();
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return stream_of(stream).is_idle() ? cudaSuccess : cudaErrorNotReady;
}

REMAT_CUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream_of(stream).synchronize();
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                                 unsigned /*flags*/) {
  stream_of(stream).submit([=] { callback(stream, cudaSuccess, data); });
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream_of(stream).submit([=] { function(data); });
  return cudaSuccess;
}

// Graphs are not simulated: no stream is ever captured.

REMAT_CUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status,
                                                    unsigned long long* id, cudaGraph_t* /*graph*/,
                                                    const cudaGraphNode_t** /*dependencies*/,
                                                    const cudaGraphEdgeData** /*edges*/, size_t* /*count*/) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}

REMAT_CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* /*mode*/) { return cudaSuccess; }
