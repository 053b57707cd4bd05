#include "device/generator.h"

#include <array>
#include <atomic>
#include <cstring>

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "device/device_memory.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

std::atomic<bool> on_cpu_flag{false};

/// As splitmix64 does.
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Generator::Generator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state = at::empty({int64_t{2} * sizeof(uint64_t)}, at::TensorOptions(at::kByte));
  const std::array<uint64_t, 2> numbers{seed_, offset_};
  memcpy(state.mutable_data_ptr(), numbers.data(), sizeof(numbers));
  return state.getIntrusivePtr();
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  std::array<uint64_t, 2> numbers{};
  TORCH_CHECK(state.numel() == sizeof(numbers), "[simulated] a state of a generator has ", sizeof(numbers),
              " bytes, this one ", state.numel());
  memcpy(numbers.data(), state.data(), sizeof(numbers));
  seed_ = numbers[0];
  offset_ = numbers[1];
}

Generator* Generator::clone_impl() const {
  auto* clone = new Generator(device().index(), seed_);
  clone->offset_ = offset_;
  return clone;
}

uint64_t Generator::seed_of_next_kernel() {
  const uint64_t seed = mixed(mixed(seed_) ^ offset_);
  offset_ += 4;
  return seed;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const all = [] {
    auto* made = new std::array<at::Generator, kDevices>;
    for (int index = 0; index < kDevices; ++index) {
      (*made)[static_cast<size_t>(index)] = at::make_generator<Generator>(static_cast<c10::DeviceIndex>(index));
    }
    return made;
  }();
  return all->at(static_cast<size_t>(device < 0 ? current_device() : device));
}

void set_draw_on_cpu(bool on_cpu) { on_cpu_flag.store(on_cpu); }

bool draw_on_cpu() { return on_cpu_flag.load(); }

}  // namespace remat::simulated
