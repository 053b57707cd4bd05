#include "tiers/spill_file.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <csignal>

#include "memory/fork.h"
#include "tiers/checked_transfer.h"
#include "tiers/extents.h"
#include "tiers/unnamed_file.h"
#include "util/mutex.h"
#include "util/seconds_since.h"

namespace remat::tiers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 2;

/// How long at least one of several was in progress.
class Activity {
 public:
  void begin() {
    if (running_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--running_ == 0) seconds_ += seconds_since(since_);
  }
  double seconds() const { return running_ == 0 ? seconds_ : seconds_ + seconds_since(since_); }

 private:
  int running_ = 0;
  Clock::time_point since_;
  double seconds_ = 0;
};

enum class Progress { kNone, kQueued, kRunning, kDone, kFailed };

bool is_over(Progress progress) { return progress != Progress::kQueued && progress != Progress::kRunning; }

}  // namespace

/// All but `impl` is read and written with the file's mutex held. A thread that runs a transfer reads `extents` and
/// `written` without: nobody changes them meanwhile.
struct Piece::State {
  std::shared_ptr<SpillFile::Impl> impl;
  Progress write = Progress::kNone, read = Progress::kNone;
  const void* from = nullptr;
  void* to = nullptr;
  std::vector<Extent> extents;
  Written written;
  std::string error;
};

struct SpillFile::Impl {
  Impl(const std::string& directory, int64_t limit_bytes)
      : file(directory), limit(limit_bytes), extents(UnnamedFile::kAlignment, limit_bytes) {}
  ~Impl() {
    {
      const MutexLock lock(mutex);
      stopped = true;
    }
    changed.notify_all();
    for (auto& thread : threads) thread.join();
  }

  bool is_in_child() const { return forks() != forks_before; }

  UnnamedFile file;
  const int64_t limit;
  const int forks_before = forks();
  mutable Mutex mutex;
  std::condition_variable_any changed;
  Extents extents REMAT_GUARDED_BY(mutex);
  std::vector<std::thread> threads REMAT_GUARDED_BY(mutex);
  std::deque<Piece*> queue REMAT_GUARDED_BY(mutex);  ///< twice where a write and a read wait
  Activity writing REMAT_GUARDED_BY(mutex), reading REMAT_GUARDED_BY(mutex);
  int64_t written_bytes REMAT_GUARDED_BY(mutex) = 0, read_bytes REMAT_GUARDED_BY(mutex) = 0;
  double waited_seconds REMAT_GUARDED_BY(mutex) = 0;
  bool stopped REMAT_GUARDED_BY(mutex) = false;

  std::string failure(int64_t bytes, const char* direction, const std::string& reason) const {
    return std::to_string(bytes) + " bytes could not be " + direction + " a file in \"" + file.directory() +
           "\": " + reason;
  }
  std::string failure_in_child(int64_t bytes) const {
    return failure(bytes, "moved to or from", "it belongs to the process that this one was forked from");
  }

  void enqueue(Piece& piece) REMAT_REQUIRES(mutex) {
    while (threads.size() < kThreads) {
      try {
        threads.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        if (threads.empty()) throw;
        break;
      }
    }
    queue.push_back(&piece);
    changed.notify_all();
  }

  /// Reads come before writes: somebody waits for them, or soon will.
  std::deque<Piece*>::iterator next() REMAT_REQUIRES(mutex) {
    const auto read = std::find_if(queue.begin(), queue.end(), [](const Piece* piece) {
      return piece->state_->read == Progress::kQueued && is_over(piece->state_->write);
    });
    if (read != queue.end()) return read;
    return std::find_if(queue.begin(), queue.end(),
                        [](const Piece* piece) { return piece->state_->write == Progress::kQueued; });
  }

  void run() {
    // SIGXFSZ, which a write past the process's limit brings, would end it; other signals are for other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::optional<TransferBuffer> buffer;
    const MutexLock lock(mutex);
    for (;;) {
      const auto job = next();
      if (job != queue.end()) {
        Piece& piece = **job;
        queue.erase(job);
        transfer(piece, buffer);
        changed.notify_all();
      } else if (stopped) {
        return;
      } else {
        changed.wait(mutex);
      }
    }
  }

  void transfer(Piece& piece, std::optional<TransferBuffer>& buffer) REMAT_REQUIRES(mutex) {
    auto& state = *piece.state_;
    const bool is_write = state.write == Progress::kQueued;
    auto& progress = is_write ? state.write : state.read;
    if (!is_write && state.write == Progress::kFailed) {
      progress = Progress::kFailed;  // `error` says why
      return;
    }
    progress = Progress::kRunning;
    auto& activity = is_write ? writing : reading;
    activity.begin();
    mutex.unlock();
    std::string reason;
    try {
      if (!buffer) buffer.emplace();
      reason = is_write ? write_checked(file, state.extents, state.from, piece.bytes_, *buffer, state.written)
                        : read_checked(file, state.extents, state.to, piece.bytes_, *buffer, state.written);
    } catch (const std::exception& error) {
      reason = error.what();
    }
    mutex.lock();
    activity.end();
    if (reason.empty()) {
      (is_write ? written_bytes : read_bytes) += piece.bytes_;
      progress = Progress::kDone;
      return;
    }
    state.error = failure(piece.bytes_, is_write ? "written to" : "read from", reason);
    progress = Progress::kFailed;
    if (is_write) give_back(state);
  }

  void give_back(Piece::State& state) REMAT_REQUIRES(mutex) {
    extents.give_back(state.extents);
    state.extents.clear();
  }

  bool wait(const Progress& progress) {
    const MutexLock lock(mutex);
    if (!is_over(progress)) {
      const auto begin = Clock::now();
      while (!is_over(progress)) changed.wait(mutex);
      waited_seconds += seconds_since(begin);
    }
    return progress == Progress::kDone;
  }
};

Piece::Piece(int64_t bytes, std::unique_ptr<State> state) : bytes_(bytes), state_(std::move(state)) {}

Piece::~Piece() {
  auto& impl = *state_->impl;
  if (impl.is_in_child()) return;
  const MutexLock lock(impl.mutex);
  const auto removed = std::remove(impl.queue.begin(), impl.queue.end(), this);
  impl.queue.erase(removed, impl.queue.end());
  while (state_->write == Progress::kRunning || state_->read == Progress::kRunning) impl.changed.wait(impl.mutex);
  impl.give_back(*state_);
}

bool Piece::wait_written() noexcept { return !state_->impl->is_in_child() && state_->impl->wait(state_->write); }
bool Piece::wait_read() noexcept { return !state_->impl->is_in_child() && state_->impl->wait(state_->read); }

void Piece::begin_read(void* to) noexcept {
  auto& impl = *state_->impl;
  if (impl.is_in_child()) return;
  const MutexLock lock(impl.mutex);
  while (!is_over(state_->read)) impl.changed.wait(impl.mutex);  // into other memory
  state_->to = to;
  state_->read = Progress::kQueued;
  try {
    impl.enqueue(*this);
  } catch (const std::exception& error) {
    state_->error = impl.failure(bytes_, "read from", error.what());
    state_->read = Progress::kFailed;
  }
}

bool Piece::is_idle() const noexcept {
  if (state_->impl->is_in_child()) return true;
  const MutexLock lock(state_->impl->mutex);
  return is_over(state_->write) && is_over(state_->read);
}

std::string Piece::error() const {
  if (state_->impl->is_in_child()) return state_->impl->failure_in_child(bytes_);
  const MutexLock lock(state_->impl->mutex);
  return state_->error;
}

SpillFile::SpillFile(const std::string& directory, int64_t limit_bytes)
    : impl_(new Impl(directory, limit_bytes), [](Impl* impl) {
        // A child has neither the threads nor the mutex's owner, so that what waits for them is left as it is.
        if (!impl->is_in_child()) delete impl;
      }) {}
SpillFile::~SpillFile() = default;

std::shared_ptr<Piece> SpillFile::write(const void* data, int64_t bytes) {
  auto state = std::make_unique<Piece::State>();
  state->impl = impl_;
  std::shared_ptr<Piece> piece(new Piece(bytes, std::move(state)));
  auto& fields = *piece->state_;
  if (impl_->is_in_child()) return piece;
  const MutexLock lock(impl_->mutex);
  fields.from = data;
  fields.write = Progress::kFailed;
  auto taken = impl_->extents.take(bytes);
  if (!taken) {
    fields.error = impl_->failure(bytes, "written to",
                                  "the limit is " + std::to_string(impl_->limit) + " bytes, of which " +
                                      std::to_string(impl_->extents.in_use()) + " are in use");
    return piece;
  }
  fields.extents = std::move(*taken);
  fields.write = Progress::kQueued;
  try {
    impl_->enqueue(*piece);
  } catch (const std::exception& error) {
    fields.error = impl_->failure(bytes, "written to", error.what());
    fields.write = Progress::kFailed;
    impl_->give_back(fields);
  }
  return piece;
}

SpillCounts SpillFile::counts() const {
  if (impl_->is_in_child()) return {};
  const MutexLock lock(impl_->mutex);
  return {impl_->written_bytes,  impl_->read_bytes,       impl_->writing.seconds(), impl_->reading.seconds(),
          impl_->waited_seconds, impl_->extents.in_use(), impl_->extents.end()};
}

const std::string& SpillFile::directory() const { return impl_->file.directory(); }
bool SpillFile::is_direct() const { return impl_->file.is_direct(); }

}  // namespace remat::tiers
