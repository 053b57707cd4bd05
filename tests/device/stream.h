// tests/device/stream.h -- the streams of simulated devices: threads that run what is queued, in order, later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <c10/core/Stream.h>

namespace remat::simulated {

/// A point in the order of a stream's work, reached when all that was queued before it is over.
class Mark {
 public:
  void reach();
  void wait();
  bool reached() const;
  /// When it was reached.
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// One stream's queue and its thread, which lives as long as the process. Functions may be called by any thread but
/// the stream's own.
class WorkQueue {
 public:
  /// That of a stream of a simulated device, which begins at its first use.
  static WorkQueue& of(const c10::Stream& stream);

  /// Queues `work`. What it throws is told by rethrow_failure(), as a device tells of a failed kernel: later.
  void submit(std::function<void()> work);
  std::shared_ptr<Mark> mark();
  /// What is queued after it begins when `mark` is reached.
  void wait_for(std::shared_ptr<Mark> mark);
  bool idle();
  /// Waits for all that is queued, and tells of failures.
  void synchronize();

 private:
  explicit WorkQueue(uint32_t number);
  void push(std::function<void()> work);
  void run(uint32_t number);

  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
};

/// Throws what a kernel of any stream threw since the last call.
void rethrow_failure();

/// The calling thread's current device, its current stream on each device, and a stream's place in the pool.
int current_device();
void set_current_device(int device);
c10::Stream current_stream(int device);
c10::Stream exchange_current_stream(const c10::Stream& stream);
c10::Stream default_stream(int device);
/// One of 32 that are given out in turn.
c10::Stream pool_stream(int device);
/// Waits for every stream of the device, and tells of failures if `tell`.
void synchronize_device(int device, bool tell = true);

/// Queued work is waited for at once, as with CUDA_LAUNCH_BLOCKING. REMAT_SIMULATED_SYNCHRONOUS=1 says so at the start.
void set_synchronous(bool synchronous);
bool synchronous();
/// Before each piece of work a stream sleeps for a random time of up to `microseconds` (0: none); the same in every
/// run. REMAT_SIMULATED_DELAY_US says so at the start.
void set_delay(int64_t microseconds);

}  // namespace remat::simulated
