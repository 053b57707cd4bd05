#include "observe/special_kernels.h"

#include "observe/recorder.h"
#include "operators/special_operator.h"

namespace remat {
namespace {

bool may_write_over(const at::Tensor& gradient) {
  Recorder* const recorder = Recorder::current();
  return recorder != nullptr && recorder->reuses(gradient);
}

void before_collective(std::string_view name, c10::function_ref<void()> make_room) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || recorder->is_suspended() || !recorder->tape()->before_collective) return;
  const Recorder::Suspension own_calls_pass(recorder);
  make_room();
  recorder->tape()->before_collective(name);
}

constexpr Engine kEngine = {.may_write_over = may_write_over, .before_collective = before_collective};

}  // namespace

std::vector<std::shared_ptr<const void>> install_special_kernels(c10::DeviceType device, bool has_ranks) {
  return install_special_operators({.engine = kEngine, .device = device, .has_ranks = has_ranks});
}

}  // namespace remat
