#include "observe/operator_trial.h"

#include <algorithm>

#include "device/device.h"
#include "pytorch/tensors_of.h"
#include "tape/checksum.h"

namespace remat {
namespace {

/// Of each operator. A checksum takes as long as to read the input once, on a device as long as to copy it to the host.
constexpr int kTrials = 4;

}  // namespace

bool OperatorTrial::is_due(const OperatorInfo& info) {
  if (!info.foreign || info.collective || info.writes_arguments()) return false;
  if (info.trials.load(std::memory_order_relaxed) >= kTrials) return false;
  return info.trials.fetch_add(1, std::memory_order_relaxed) < kTrials;
}

OperatorTrial::OperatorTrial(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs)
    : may_alias_(std::ranges::any_of(info.handle.schema().returns(),
                                     [](const auto& r) { return r.alias_info() != nullptr; })) {
  std::vector<const c10::StorageImpl*> written;
  for (const auto position : info.written) {
    for_each_tensor(inputs[position], [&](const at::Tensor& t) {
      if (t.defined() && t.has_storage()) written.push_back(storage_of(t));
    });
  }
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& t) {
      if (!t.defined() || !is_plain(t)) return;
      const device::Kind& kind = device::kind_of(t.device());
      if (!kind.has_contents() || kind.is_captured()) return;
      c10::StorageImpl* const storage = storage_of(t);
      if (std::ranges::find(written, storage) != written.end()) return;
      const ByteRange range = reach_of(*t.unsafeGetTensorImpl());
      inputs_.push_back({StoragePtr::reclaim_copy(storage), range, storage->nbytes(), checksum(*storage, range)});
    });
  }
}

std::vector<Contradiction> OperatorTrial::contradictions(c10::ArrayRef<const c10::IValue> outputs) const {
  if (inputs_.empty()) return {};
  std::vector<const c10::StorageImpl*> results;
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& t) {
      if (!may_alias_ && t.defined() && t.has_storage()) results.push_back(storage_of(t));
    });
  }
  std::vector<Contradiction> found;
  for (const Input& input : inputs_) {
    const bool changed =
        input.storage->nbytes() != input.bytes || checksum(*input.storage, input.range) != input.checksum;
    const bool aliased = std::ranges::find(results, input.storage.get()) != results.end();
    if (changed || aliased) found.push_back({input.storage, changed});
  }
  return found;
}

}  // namespace remat
