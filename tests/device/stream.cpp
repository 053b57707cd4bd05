#include "device/stream.h"

#include <array>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "device/device_memory.h"
#include "support/silence.h"

namespace remat::simulated {
namespace {

constexpr int kStreams = 33;  // of a device: its default one, and 32 of the pool

int64_t from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::strtoll(value, nullptr, 10);
}

std::atomic<bool>& synchronous_flag() {
  static std::atomic<bool> flag{from_environment("REMAT_SIMULATED_SYNCHRONOUS") != 0};
  return flag;
}

std::atomic<int64_t>& delay() {
  static std::atomic<int64_t> microseconds{from_environment("REMAT_SIMULATED_DELAY_US")};
  return microseconds;
}

struct Failure {
  std::mutex mutex;
  std::string message;
};

Failure& failure() {
  static auto* const first = new Failure;
  return *first;
}

void note_failure(const char* message) {
  const std::lock_guard lock(failure().mutex);
  if (failure().message.empty()) failure().message = message;
}

using Queues = std::array<std::atomic<WorkQueue*>, size_t{kDevices} * kStreams>;

Queues& queues() {
  static auto* const all = new Queues{};
  return *all;
}

c10::Stream stream_of(int device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device)), id);
}

thread_local int device_of_thread = 0;
thread_local std::array<int64_t, kDevices> streams_of_thread{};

}  // namespace

void Mark::reach() {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

bool Mark::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_;
}

std::chrono::steady_clock::time_point Mark::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

WorkQueue& WorkQueue::of(const c10::Stream& stream) {
  static std::mutex making;
  TORCH_CHECK(stream.device_type() == c10::kPrivateUse1 && stream.device_index() < kDevices && stream.id() >= 0 &&
                  stream.id() < kStreams,
              "[simulated] this is no stream of a simulated device");
  const size_t number = static_cast<size_t>(stream.device_index()) * kStreams + static_cast<size_t>(stream.id());
  std::atomic<WorkQueue*>& place = queues()[number];
  if (place.load() == nullptr) {
    const std::lock_guard lock(making);
    if (place.load() == nullptr) place.store(new WorkQueue(static_cast<uint32_t>(number)));
  }
  return *place.load();
}

WorkQueue::WorkQueue(uint32_t number) {
  std::thread([this, number] { run(number); }).detach();
}

void WorkQueue::run(uint32_t number) {
  std::minstd_rand random(number + 1);
  // What kernels call of PyTorch is not to be differentiated, and not to be observed.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::DisableRecordFunctionGuard unobserved;
  test::Silence silence;  // the call that queued a kernel has warned already
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silence);
  std::unique_lock lock(mutex_);
  while (true) {
    queued_.wait(lock, [this] { return !work_.empty(); });
    {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      running_ = true;
      lock.unlock();
      if (const int64_t most = delay().load(); most > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<uint64_t>(most + 1)));
      }
      try {
        work();
      } catch (const std::exception& error) {
        note_failure(error.what());
      }
    }  // what the work held is gone before the next begins
    lock.lock();
    running_ = false;
  }
}

void WorkQueue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  queued_.notify_one();
}

void WorkQueue::submit(std::function<void()> work) {
  push(std::move(work));
  if (synchronous()) mark()->wait();
}

std::shared_ptr<Mark> WorkQueue::mark() {
  auto mark = std::make_shared<Mark>();
  push([mark] { mark->reach(); });
  return mark;
}

void WorkQueue::wait_for(std::shared_ptr<Mark> mark) {
  push([mark = std::move(mark)] { mark->wait(); });
}

bool WorkQueue::idle() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !running_;
}

void WorkQueue::synchronize() {
  mark()->wait();
  rethrow_failure();
}

void rethrow_failure() {
  std::string message;
  {
    const std::lock_guard lock(failure().mutex);
    std::swap(message, failure().message);
  }
  TORCH_CHECK(message.empty(), "[simulated] a kernel that was queued before failed: ", message);
}

int current_device() { return device_of_thread; }

void set_current_device(int device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "[simulated] there is no device ", device);
  device_of_thread = device;
}

c10::Stream current_stream(int device) { return stream_of(device, streams_of_thread.at(static_cast<size_t>(device))); }

c10::Stream exchange_current_stream(const c10::Stream& stream) {
  const c10::Stream before = current_stream(stream.device_index());
  streams_of_thread.at(static_cast<size_t>(stream.device_index())) = stream.id();
  return before;
}

c10::Stream default_stream(int device) { return stream_of(device, 0); }

c10::Stream pool_stream(int device) {
  static std::array<std::atomic<uint32_t>, kDevices> given{};
  return stream_of(device, 1 + given.at(static_cast<size_t>(device)).fetch_add(1) % (kStreams - 1));
}

void synchronize_device(int device, bool tell) {
  for (int64_t id = 0; id < kStreams; ++id) {
    const size_t number = static_cast<size_t>(device) * kStreams + static_cast<size_t>(id);
    if (WorkQueue* queue = queues()[number].load()) queue->mark()->wait();
  }
  if (tell) rethrow_failure();
}

void set_synchronous(bool synchronous) { synchronous_flag().store(synchronous); }

bool synchronous() { return synchronous_flag().load(); }

void set_delay(int64_t microseconds) { delay().store(microseconds); }

}  // namespace remat::simulated
