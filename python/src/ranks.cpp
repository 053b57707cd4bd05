// How sessions reach those of other processes. Not in Python: an interrupt that arrives while the ranks wait for each
// other would be raised between what some of them know and others do not.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <unistd.h>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "module.h"

namespace remat::python {
namespace {

/// A backend of c10d, whose destructor waits for its threads. A child of the process must not destroy it: the threads
/// are not there. Where they are, they may wait for the interpreter's lock: work that is done releases the Python
/// objects that its caller's thread-local state had.
std::shared_ptr<c10d::Backend> of_this_process(c10::intrusive_ptr<c10d::Backend> backend) {
  const pid_t owner = getpid();
  return {backend.release(), [owner](c10d::Backend* held) {
            if (getpid() != owner) return;
            void* const released = release_lock();
            c10::intrusive_ptr<c10d::Backend>::reclaim(held);
            if (released != nullptr) acquire_lock(released);
          }};
}

}  // namespace

Ranks ranks_of(c10::intrusive_ptr<c10d::Backend> connections) {
  const int rank = connections->getRank(), size = connections->getSize();
  const auto backend = of_this_process(std::move(connections));
  return ranks_by_sums(rank, size, [backend](int64_t* words, int64_t count) {
    std::vector<at::Tensor> tensors = {at::from_blob(words, {count}, at::kLong)};
    backend->allreduce(tensors)->wait();
  });
}

}  // namespace remat::python
