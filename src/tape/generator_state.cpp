#include "tape/generator_state.h"

#include <array>
#include <bit>
#include <chrono>
#include <mutex>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>

#include "device/allocation.h"
#include "device/unobserved.h"
#include "memory/ledger.h"
#include "tape/checksum.h"

namespace remat {
namespace {

constexpr std::chrono::milliseconds kLongestDraw{20};

/// Without an allocation, which a budget might refuse.
uint64_t checksum_of(at::CPUGeneratorImpl& generator) {
  const at::mt19937_data_pod engine = generator.engine().data();
  const auto left = generator.next_float_normal_sample();
  const auto left_double = generator.next_double_normal_sample();
  const std::array<uint64_t, 6> rest = {
      engine.seed_,
      static_cast<uint64_t>(engine.left_) << 32 | engine.next_,
      static_cast<uint64_t>(engine.seeded_) << 2 | (left ? 2 : 0) | (left_double ? 1 : 0),
      std::bit_cast<uint32_t>(left.value_or(0)),
      std::bit_cast<uint64_t>(left_double.value_or(0)),
      memory::checksum_of(engine.state_.data(), sizeof(engine.state_))};
  return memory::checksum_of(rest.data(), sizeof(rest));
}

}  // namespace

GeneratorRecord capture_generator(at::Generator generator) {
  const Unobserved kernels_alone;  // a device's generator may call operators to make a state
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor state = generator.get_state();
  return {std::move(generator), std::move(state)};
}

bool is_free(at::Generator generator) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestDraw;
  do {
    // Says no, too, where this thread holds it: a POSIX mutex of the usual kind does.
    const std::unique_lock<std::mutex> lock(generator.mutex(), std::try_to_lock);
    if (lock.owns_lock()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

uint64_t state_checksum(at::Generator generator) noexcept {
  const memory::FrozenPlain frozen;
  const Unobserved kernels_alone;
  try {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (auto* const cpu = dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl())) {
      return checksum_of(*cpu);
    }
    return checksum(*generator.get_state().unsafeGetTensorImpl());
  } catch (...) {  // no memory for it
    return 0;
  }
}

GeneratorRestorer::GeneratorRestorer(const GeneratorRecord& record)
    : present_(capture_generator(record.generator)), drawn_(record.drawn) {
  const Unobserved kernels_alone;
  const std::lock_guard<std::mutex> lock(present_.generator.mutex());
  present_.generator.set_state(record.state);
}

bool GeneratorRestorer::has_drawn_the_same() const { return state_checksum(present_.generator) == drawn_; }

GeneratorRestorer::~GeneratorRestorer() {
  const Unobserved kernels_alone;
  const std::lock_guard<std::mutex> lock(present_.generator.mutex());
  present_.generator.set_state(present_.state);
}

}  // namespace remat
