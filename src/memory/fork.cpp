#include "memory/fork.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

namespace remat {
namespace {

std::atomic<int> g_forks{0};
[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });

struct Mutexes {
  Mutex mutex;
  std::vector<std::pair<Mutex*, bool>> all;  ///< and whether it was taken before the fork that is in progress

  static Mutexes& instance() {
    static auto* const mutexes = [] {
      pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                     [] { instance().after_fork_in_child(); });
      return new Mutexes;
    }();
    return *mutexes;
  }

  // Not checked: the mutexes are as many as have been registered, and between these calls the process is copied.

  void before_fork() REMAT_UNCHECKED {
    mutex.lock();
    const auto deadline = std::chrono::steady_clock::now() + kLongestWaitForFork;
    for (auto& [each, taken] : all) {
      while (!(taken = each->try_lock()) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    }
  }
  void after_fork_in_parent() REMAT_UNCHECKED {
    for (auto& [each, taken] : all) {
      if (taken) each->unlock();
    }
    mutex.unlock();
  }
  void after_fork_in_child() REMAT_UNCHECKED {
    for (auto& [each, taken] : all) new (each) Mutex;
    mutex.unlock();
  }
};

}  // namespace

int forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void free_in_children(Mutex& mutex) {
  Mutexes& mutexes = Mutexes::instance();
  const MutexLock lock(mutexes.mutex);
  mutexes.all.emplace_back(&mutex, false);
}

}  // namespace remat
