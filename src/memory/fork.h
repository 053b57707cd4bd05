// src/memory/fork.h -- processes that are copies of this one.
//
// A child of fork() has one thread, and a copy of all that its parent had: steps that are the parent's to end, searches
// whose threads are not there, mutexes that nobody unlocks. Mutexes of the whole process are taken before a fork. What
// belongs to a step or a session remembers forks() and looks whether it is its parent's.
#pragma once

#include <chrono>

#include "util/mutex.h"

namespace remat {

/// What a fork waits at most for mutexes that other threads hold: those of free_in_children(), and those of all tapes.
inline constexpr std::chrono::milliseconds kLongestWaitForFork{200};

/// How many forks lie between this process and the one that loaded the library.
int forks() noexcept;

/// `mutex`, which is never destroyed, is taken before each fork, for a consistent state in the child, and free in the
/// child in any case: where another thread holds it for too long, the fork does not wait.
void free_in_children(Mutex& mutex);

/// Makes what a process has one of, whose `mutex` is free_in_children(). It is never destroyed: tensors, and threads
/// that run operators, may outlive static destruction.
template <class T>
T& never_destroyed() {
  auto* const made = new T;
  free_in_children(made->mutex);
  return *made;
}

}  // namespace remat
