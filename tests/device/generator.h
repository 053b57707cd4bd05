// tests/device/generator.h -- random numbers of simulated devices: a seed, and an offset that each kernel moves.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace remat::simulated {

/// As those of CUDA: what a kernel draws depends on the seed and on the offset at which it began alone.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  static c10::DeviceType device_type() { return c10::kPrivateUse1; }
  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  /// The seed of a generator of the CPU for the kernel that comes next. The mutex is held.
  uint64_t seed_of_next_kernel();

 private:
  Generator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);

/// Whether random operators that are given no generator run on the CPU and draw from the CPU's default one, as devices
/// without kernels for them do (MPS, some NPUs); false at the start.
void set_draw_on_cpu(bool on_cpu);
bool draw_on_cpu();

}  // namespace remat::simulated
