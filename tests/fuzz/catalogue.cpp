// Which operators the programs of each kind draw from, and how often.
#include <algorithm>

#include "fuzz/machine.h"

namespace remat::fuzz {
namespace {

std::vector<Operator> make_catalogue(Kind kind, bool accelerator) {
  std::vector<Operator> list;
  for (auto* part : {pointwise_operators, shape_operators, inplace_operators, layer_operators, random_operators,
                     autograd_operators}) {
    if (part == random_operators && kind == Kind::kThreads) continue;
    for (const auto& op : part()) list.push_back(op);
  }
  if (accelerator) {
    for (const auto& op : accelerator_operators()) list.push_back(op);
  }
  int ordinary = 0;
  for (const auto& op : list) ordinary += op.weight;
  std::vector<Operator> own;
  if (kind == Kind::kStorages) own = storage_operators();
  if (kind == Kind::kHiddenInputs || kind == Kind::kHiddenWrites) own = hidden_write_operators();
  if (kind == Kind::kSparse) own = sparse_operators();
  if (kind == Kind::kScripts) own = script_operators();
  if (kind == Kind::kDoubleBackward) own = double_backward_operators();
  int weights = 0;
  for (const auto& op : own) weights += op.weight;
  for (auto& op : own) {  // together every fourth instruction
    op.weight = std::max(1, op.weight * ordinary / (3 * weights));
    list.push_back(op);
  }
  return list;
}

}  // namespace

/// On an accelerator only ordinary programs run: PyTorch has no sparse kernels for those of PrivateUse1, and what is
/// written through pointers, or by scripts, is the host's.
const std::vector<Operator>& catalogue(Kind kind, c10::Device device) {
  static const auto make_all = [](bool accelerator) {
    std::vector<std::vector<Operator>> lists;
    for (int k = 0; k <= static_cast<int>(Kind::kThreads); ++k) {
      lists.push_back(make_catalogue(static_cast<Kind>(k), accelerator));
    }
    return lists;
  };
  static const auto of_cpu = make_all(false);
  static const auto of_accelerators = make_all(true);
  return (device.is_cpu() ? of_cpu : of_accelerators)[static_cast<size_t>(kind)];
}

}  // namespace remat::fuzz
