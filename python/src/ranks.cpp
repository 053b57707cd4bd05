// How sessions reach those of other processes. Not in Python: an interrupt that arrives while the ranks wait for each
// other would be raised between what some of them know and others do not.
#include <algorithm>
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

/// A backend of c10d, which a child of the process must not destroy: it would wait for threads that are not there.
std::shared_ptr<c10d::Backend> of_this_process(c10::intrusive_ptr<c10d::Backend> backend) {
  const pid_t owner = getpid();
  return {backend.release(), [owner](c10d::Backend* held) {
            if (getpid() == owner) c10::intrusive_ptr<c10d::Backend>::reclaim(held);
          }};
}

}  // namespace

Ranks ranks_of(c10::intrusive_ptr<c10d::Backend> connections) {
  const int rank = connections->getRank();
  return {.rank = rank, .gather = [backend = of_this_process(std::move(connections)), rank](const auto& mine) {
            // A sum with zeros, in memory that is not PyTorch's: a tensor could not be allocated where memory has run
            // short.
            const auto ranks = static_cast<size_t>(backend->getSize());
            const auto count = static_cast<std::ptrdiff_t>(mine.size());
            std::vector<int64_t> words(ranks * mine.size());
            std::copy(mine.begin(), mine.end(), words.begin() + rank * count);
            std::vector<at::Tensor> tensors = {
                at::from_blob(words.data(), {static_cast<int64_t>(words.size())}, at::kLong)};
            backend->allreduce(tensors)->wait();
            std::vector<std::vector<int64_t>> all;
            for (auto next = words.begin(); next != words.end(); next += count) all.emplace_back(next, next + count);
            return all;
          }};
}

}  // namespace remat::python
