// src/tape/kernel_times.h -- how long operators take on a device whose kernels run later.
#pragma once

#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "tape/program.h"

namespace remat {

/// By an event in the stream before an operator and one after it, which are asked when the step is over. What other
/// streams do meanwhile counts too.
class KernelTimes {
 public:
  explicit KernelTimes(c10::Device device) : device_(device) {}

  /// An event in the stream that this thread uses now; none where the device can't make one. Thread-safe.
  std::optional<c10::Event> mark() const;
  /// `id` ran between two events.
  void add(OperationId id, std::optional<c10::Event> begin, std::optional<c10::Event> end);
  /// Waits for the device, and gives the operations their seconds. Those that the device cannot tell keep what
  /// they have. Throws what the device tells of a kernel that failed.
  void resolve(Program& program);

 private:
  struct Timed {
    OperationId id;
    c10::Event begin, end;
  };

  const c10::Device device_;
  std::vector<Timed> timed_;
};

}  // namespace remat
