#include "device/call_values.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "device/stream.h"

namespace remat::simulated {
namespace {

bool takes_tensors_of_the_cpu(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 6> kNames = {
      "aten::index",           "aten::index_put_",    "aten::_index_put_impl_",
      "aten::_index_put_impl", "aten::_unsafe_index", "aten::_pack_padded_sequence"};
  return std::find(kNames.begin(), kNames.end(), op.schema().name()) != kNames.end();
}

}  // namespace

c10::Device device_of_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  std::optional<c10::Device> named;
  const auto see = [&](const at::Tensor& tensor) {
    if (tensor.is_cpu() && (tensor.dim() == 0 || takes_tensors_of_the_cpu(op))) return tensor;
    TORCH_CHECK(tensor.is_privateuseone() && (!found || *found == tensor.device()), "[simulated] ", op.schema().name(),
                ": expected all tensors to be on the same device, but found at least two devices, ",
                found ? found->str() : std::string("simulated"), " and ", tensor.device());
    found = tensor.device();
    return tensor;
  };
  for (const c10::IValue& argument : arguments) {
    with_tensors(argument, see);
    if (argument.isDevice()) named = argument.toDevice();
  }
  if (found) return *found;
  if (named && named->has_index()) return *named;
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(current_device()));
}

}  // namespace remat::simulated
