// remat/ranks.h -- processes that run the steps of a training loop together, each with a session of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace remat {

/// How a session reaches the sessions of the other processes: see SessionOptions::ranks. The core of remat knows no
/// network; remat::ranks_of() (remat/distributed.h) makes one from a process group of c10d.
struct Ranks {
  /// Of this process, from 0.
  int rank = 0;
  /// Gives `mine` to all ranks and returns what each has given, by rank. Blocks until all have called it; all calls
  /// that belong together have the same number of integers. Called on the thread of a step or, within a backward pass,
  /// on one of autograd's, by one thread at a time and never while a lock of remat's is held. It must not use the
  /// communicator of the model's own collectives. An exception ends the step.
  std::function<std::vector<std::vector<int64_t>>(const std::vector<int64_t>& mine)> gather;
};

/// By an all-reduction: `add_up(words, count)` replaces each of the integers by its sum over the `size` ranks. The
/// memory is not LibTorch's, which may have run short. As `gather` otherwise. Throws Error unless 0 <= rank < size and
/// there is a function.
Ranks ranks_by_sums(int rank, int size, std::function<void(int64_t* words, int64_t count)> add_up);

}  // namespace remat
