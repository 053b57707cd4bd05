// src/pytorch/kernel_threads.h -- the threads that kernels on the CPU run on: OpenMP's pool, and how many of it are
// used.
#pragma once

#include <vector>

#include "pytorch/floating_point_mode.h"

namespace remat {

/// How many threads kernels called from this thread may use.
struct ThreadCounts {
  int kernels = 0;   ///< at::get_num_threads()
  int products = 0;  ///< MKL's own number; 0 where PyTorch has no MKL

  bool operator==(const ThreadCounts&) const = default;

  /// Those in force. `products`: asks MKL, which takes longer; else 0.
  static ThreadCounts current(bool products);
};

/// While it lives, this thread has other counts. Threads of OpenMP's pool take over how their maker rounds and treats
/// denormals when they are made, and keep it; where fewer are used, the others end. Afterwards the pool is as it was.
class ThreadCountsScope {
 public:
  /// MKL's is left alone where `counts` has none.
  ThreadCountsScope(const ThreadCounts& before, const ThreadCounts& counts);
  ~ThreadCountsScope();
  ThreadCountsScope(const ThreadCountsScope&) = delete;
  ThreadCountsScope& operator=(const ThreadCountsScope&) = delete;

 private:
  ThreadCounts before_;
  bool changes_kernels_ = false, changes_products_ = false;
  int own_of_mkl_ = 0;                    ///< before; 0: it followed what holds for all threads
  std::vector<FloatingPointMode> modes_;  ///< of the pool's threads, where some of them end
};

/// Throws Error where OpenMP takes fewer threads than it is asked for while the machine is busy (OMP_DYNAMIC): then no
/// number of them says how a sum was rounded.
void check_threads_are_fixed();

/// Makes the threads that a kernel with so many will use, under this thread's present mode.
void make_threads(int threads);

}  // namespace remat
