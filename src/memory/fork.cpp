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
[[maybe_unused]] const int g_registered = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });

struct Mutexes {
  std::mutex mutex;
  std::vector<std::pair<std::mutex*, bool>> all;  ///< and whether it was taken before the fork that is in progress

  static Mutexes& instance() {
    static auto* const mutexes = [] {
      pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                     [] { instance().after_fork_in_child(); });
      return new Mutexes;
    }();
    return *mutexes;
  }

  void before_fork() {
    mutex.lock();
    const auto deadline = std::chrono::steady_clock::now() + kLongestWaitForFork;
    for (auto& [each, taken] : all) {
      while (!(taken = each->try_lock()) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    }
  }
  void after_fork_in_parent() {
    for (auto& [each, taken] : all) {
      if (taken) each->unlock();
    }
    mutex.unlock();
  }
  void after_fork_in_child() {
    for (auto& [each, taken] : all) new (each) std::mutex;
    mutex.unlock();
  }
};

}  // namespace

int forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void free_in_children(std::mutex& mutex) {
  Mutexes& mutexes = Mutexes::instance();
  const std::lock_guard lock(mutexes.mutex);
  mutexes.all.emplace_back(&mutex, false);
}

}  // namespace remat
