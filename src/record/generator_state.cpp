#include "record/generator_state.h"

#include <cstring>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace remat {

GeneratorRecord capture_generator(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor state = generator.get_state();
  return {std::move(generator), std::move(state)};
}

at::Generator default_generator(c10::Device device) {
  // What a meta tensor stands for would draw from it.
  if (device.is_cpu() || device.is_meta()) return at::detail::getDefaultCPUGenerator();
  if (device.is_cuda()) return at::globalContext().defaultGenerator(device);
  return {};
}

bool same_state(GeneratorRecord record) {
  const std::lock_guard<std::mutex> lock(record.generator.mutex());
  const at::Tensor now = record.generator.get_state();
  return now.nbytes() == record.state.nbytes() &&
         std::memcmp(now.const_data_ptr(), record.state.const_data_ptr(), now.nbytes()) == 0;
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
