#include "tape/allocation_log.h"

#include <algorithm>
#include <utility>

namespace remat {

void AllocationLog::write(Block& block, bool for_replays, Event event) {
  block.number = count_++;
  done_.changes.push_back({static_cast<int32_t>(event), block.number, block.bytes, for_replays});
}

void AllocationLog::allocated(const void* data, int64_t bytes, bool plain, Event event) {
  Block& block = blocks_[data] = {bytes};
  if (!plain) {
    last_replays_ = data;
  } else if (kernels_ > 0) {
    in_kernel_.push_back(data);
  } else {
    write(block, /*for_replays=*/false, event);
  }
}

void AllocationLog::freed(const void* data, bool noted, Event event) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;  // older than the step
  const int32_t number = found->second.number;
  blocks_.erase(found);
  std::erase(in_kernel_, data);
  if (number >= 0 && !noted) done_.changes.push_back({static_cast<int32_t>(event), number, 0, false});
}

void AllocationLog::held(int64_t bytes, Event event) {
  const auto found = blocks_.find(std::exchange(last_replays_, nullptr));
  if (found == blocks_.end() || found->second.number >= 0 || found->second.bytes != bytes) return;
  write(found->second, /*for_replays=*/true, event);
}

void AllocationLog::holds(ValueId value, const void* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.number < 0) return;  // older than the step, or a replay's
  if (done_.blocks.size() <= value) done_.blocks.resize(value + 1, -1);
  if (done_.blocks[value] < 0) done_.blocks[value] = found->second.number;
}

void AllocationLog::kernel_ends(Event event) {
  if (--kernels_ > 0) return;
  for (const void* data : std::exchange(in_kernel_, {})) write(blocks_[data], /*for_replays=*/false, event);
}

StepAllocations AllocationLog::take(size_t values) {
  done_.blocks.resize(values, -1);
  return std::move(done_);
}

}  // namespace remat
