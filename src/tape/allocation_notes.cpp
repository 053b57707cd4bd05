#include <remat/allocation_notes.h>

#include <optional>
#include <utility>

#include <remat/error.h>

#include "tape/trace.h"

namespace remat {

struct AllocationNotes::Impl {
  Trace::LastAllocations last, before;
};

AllocationNotes::AllocationNotes() : impl_(std::make_unique<Impl>()) {
  impl_->last = std::make_shared<std::optional<StepAllocations>>();
  impl_->before = std::exchange(Trace::last_allocations(), impl_->last);
}
AllocationNotes::~AllocationNotes() { Trace::last_allocations() = impl_->before; }

StepAllocations AllocationNotes::take() {
  if (!*impl_->last) {
    throw Error(
        "[estimate] no step has written down its allocations; let one that writes a graph end on this thread first");
  }
  return *std::exchange(*impl_->last, std::nullopt);
}

}  // namespace remat
