#include "operators/draw_section.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/record_function.h>
#include <pthread.h>

#include "memory/fork.h"
#include "operators/operator_info.h"

namespace remat {
namespace {

constexpr std::chrono::seconds kLongestWait{2};
constexpr std::chrono::microseconds kShortWait{100};  ///< what a small operator takes: worth no sleep
constexpr std::chrono::microseconds kPause{20};
/// What an operator takes at most that another thread began before the first watch, and that nobody sees. Once.
constexpr std::chrono::milliseconds kLongestUnseen{20};

/// Its address stands for the thread.
thread_local char t_thread = 0;

std::atomic<const void*> g_owner{nullptr};  ///< the thread that is in a section, and waited for the others
std::atomic<const void*> g_last_owner{nullptr};
std::atomic<int> g_waiting{0};
std::atomic<std::atomic<bool>*> g_waited_for{nullptr};  ///< the owner's
int g_depth = 0;                                        ///< of the owner's sections in each other; the owner's
std::atomic<int> g_beside{0};                           ///< sections of threads that have not waited
std::atomic<uint64_t> g_besides{0};                     ///< how many of these have ever begun

void after_fork_in_child() {
  if (g_owner.load() != &t_thread) {
    g_owner = nullptr;
    g_waited_for = nullptr;
    g_depth = 0;
  }
  g_beside = g_waiting = 0;
}
[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

struct Waiting {
  Waiting() { ++g_waiting; }
  ~Waiting() { --g_waiting; }
};

/// The last owner lets those go first who wait: one that draws all the time would leave them no moment.
bool try_to_own(int others_waiting) {
  if (g_last_owner.load(std::memory_order_relaxed) == &t_thread && others_waiting > 0) return false;
  const void* nobody = nullptr;
  if (!g_owner.compare_exchange_strong(nobody, &t_thread, std::memory_order_acquire)) return false;
  g_last_owner.store(&t_thread, std::memory_order_relaxed);
  return true;
}

/// Whether this thread is the owner now.
bool own() {
  if (g_owner.load(std::memory_order_relaxed) == &t_thread || try_to_own(g_waiting)) return true;
  const Waiting waiting;
  const auto begin = std::chrono::steady_clock::now();
  while (!try_to_own(g_waiting - 1)) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > kLongestWait) {
      if (auto* const waited_for = g_waited_for.load()) *waited_for = true;
      return false;
    }
    if (waited < kShortWait) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return true;
}

/// Of an operator on any thread.
struct DrawingOperator final : at::ObserverContext {
  DrawSection section;
};

std::atomic<const void*> g_first_seen{nullptr};  ///< the thread of the first operator seen
std::atomic<bool> g_several{false};

void note_thread() {
  if (g_several.load(std::memory_order_relaxed)) return;
  const void* first = nullptr;
  if (!g_first_seen.compare_exchange_strong(first, &t_thread) && first != &t_thread) g_several = true;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  note_thread();
  const OperatorInfo* const info = operator_info(fn);
  return info != nullptr && info->random ? std::make_unique<DrawingOperator>() : nullptr;
}

void on_end(const at::RecordFunction& /*fn*/, at::ObserverContext* /*context*/) {}

}  // namespace

DrawSection::DrawSection(std::atomic<bool>* waited_for) {
  if (own()) {
    if (g_depth++ == 0) g_waited_for = waited_for;
  } else {
    state_ = State::kBeside;
    ++g_beside;
    ++g_besides;
  }
  besides_at_first_ = g_besides;
  alone_at_first_ = state_ == State::kOwner && g_beside == 0;
}

bool DrawSection::is_alone() const { return alone_at_first_ && g_besides == besides_at_first_; }

void DrawSection::leave() {
  const State state = std::exchange(state_, State::kLeft);
  if (state == State::kBeside) --g_beside;
  if (state == State::kOwner && --g_depth == 0) {
    g_waited_for = nullptr;
    g_owner.store(nullptr, std::memory_order_release);
  }
}

bool several_threads_run_operators() { return g_several.load(std::memory_order_relaxed); }

std::shared_ptr<const void> watch_draws() {
  static Mutex& mutex = *[] {
    auto* const made = new Mutex;
    free_in_children(*made);
    return made;
  }();
  static std::weak_ptr<const void> watch;
  static bool waited = false, exiting = false;
  const MutexLock lock(mutex);
  if (auto present = watch.lock()) return present;
  const at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::FUNCTION}));
  if (!std::exchange(waited, true)) std::this_thread::sleep_for(kLongestUnseen);
  // Made after PyTorch's list of callbacks, and so destroyed before it: then there is nothing to be taken from it.
  static const struct Exit {
    ~Exit() { exiting = true; }
  } exit;
  auto made = std::shared_ptr<const void>(&g_owner, [handle](const void*) {
    if (!exiting) at::removeCallback(handle);
  });
  watch = made;
  return made;
}

}  // namespace remat
