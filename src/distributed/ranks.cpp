#include <utility>

#include <ATen/ops/from_blob.h>
#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace remat {

Ranks ranks_of(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  if (!group) throw Error("[ranks] there is no process group; make one first");
  const int rank = group->getRank(), size = group->getSize();
  return ranks_by_sums(rank, size, [group = std::move(group)](int64_t* words, int64_t count) {
    std::vector<at::Tensor> tensors = {at::from_blob(words, {count}, at::kLong)};
    group->allreduce(tensors)->wait();
  });
}

}  // namespace remat
