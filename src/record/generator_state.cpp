#include "record/generator_state.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "memory/ledger.h"

namespace remat {
namespace {

constexpr std::chrono::milliseconds kLongestDraw{20};

}  // namespace

GeneratorRecord capture_generator(at::Generator generator) {
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

at::Generator default_generator(c10::Device device) {
  // What a meta tensor stands for would draw from it.
  if (device.is_cpu() || device.is_meta()) return at::detail::getDefaultCPUGenerator();
  if (device.is_cuda()) return at::globalContext().defaultGenerator(device);
  return {};
}

bool has_drawn(GeneratorRecord record) {
  const memory::FrozenPlain frozen;
  const std::lock_guard<std::mutex> lock(record.generator.mutex());
  const at::Tensor now = record.generator.get_state();
  return now.nbytes() != record.state.nbytes() ||
         std::memcmp(now.const_data_ptr(), record.state.const_data_ptr(), now.nbytes()) != 0;
}

GeneratorRestorer::GeneratorRestorer(const GeneratorRecord& record) : present_(capture_generator(record.generator)) {
  const std::lock_guard<std::mutex> lock(present_.generator.mutex());
  present_.generator.set_state(record.state);
}

GeneratorRestorer::~GeneratorRestorer() {
  const std::lock_guard<std::mutex> lock(present_.generator.mutex());
  present_.generator.set_state(present_.state);
}

}  // namespace remat
