#include "observe/call_generators.h"

#include "device/device.h"
#include "memory/ledger.h"
#include "pytorch/tensors_of.h"
#include "tape/generator_state.h"

namespace remat {
namespace {

c10::Device device_of(c10::ArrayRef<const c10::IValue> inputs) {
  std::optional<c10::Device> device;
  for (const auto& input : inputs) {
    if (input.isDevice()) return input.toDevice();
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !device) device = tensor.device();
    });
    if (device) return *device;
  }
  return device::kHost;
}

/// What an operator that is about to run may draw from: without a state where it draws from nothing, nothing where its
/// state cannot be told, be it that there is `no_room` for it.
std::optional<GeneratorRecord> state_before(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs,
                                            bool& no_room) {
  if (!info.random && !info.foreign) return GeneratorRecord();
  at::Generator generator;
  const int16_t position = info.generator_argument;
  if (position >= 0 && inputs[static_cast<size_t>(position)].isGenerator()) {
    generator = inputs[static_cast<size_t>(position)].toGenerator();
  } else {
    const c10::Device device = device_of(inputs);
    generator = device::kind_of(device).default_generator(device);
  }
  if (!generator.defined()) return info.random ? std::nullopt : std::optional(GeneratorRecord());
  if (!info.random && !is_free(generator)) return std::nullopt;
  const memory::FrozenPlain frozen;  // plain keeps no generator states
  try {
    GeneratorRecord record = capture_generator(generator);
    // To be told by it whether anything was drawn. Kernels of devices may draw from elsewhere.
    if (!info.random || !device::is_host(generator.device())) record.drawn = state_checksum(generator);
    return record;
  } catch (...) {  // do without
    no_room = true;
    return std::nullopt;
  }
}

/// The default generator, beside which a user's operator with `inputs` is given another: it may draw from both.
at::Generator second_generator(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  if (!info.random && !info.foreign) return {};
  const c10::Device device = device_of(inputs);
  // A device without a kernel for an operator has the CPU's compute it, which draws there.
  if (device::has_streams(device)) {
    return device::kind_of(device::kHost).default_generator(device::kHost);
  }
  if (!info.foreign || info.generator_argument < 0) return {};
  const c10::IValue& given = inputs[static_cast<size_t>(info.generator_argument)];
  if (!given.isGenerator()) return {};
  at::Generator generator = device::kind_of(device).default_generator(device);
  return generator == given.toGenerator() ? at::Generator() : generator;
}

}  // namespace

CallGenerators::CallGenerators(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  before_ = state_before(info, inputs, no_room_);
  second_ = second_generator(info, inputs);
  if (second_.defined() && !is_free(second_)) before_.reset();
  if (before_ && second_.defined()) second_drawn_ = state_checksum(second_);
  if (second_drawn_ == 0) second_ = at::Generator();
}

std::optional<GeneratorRecord> CallGenerators::take_state() {
  if (before_) first_ = before_->generator;
  return std::exchange(before_, std::nullopt);
}

bool CallGenerators::has_drawn_alone(uint64_t& drawn) const {
  drawn = first_.defined() ? state_checksum(first_) : 0;
  if (first_.defined() && drawn == 0) return false;
  return !second_.defined() || state_checksum(second_) == second_drawn_;
}

}  // namespace remat
