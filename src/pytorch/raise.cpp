#include "pytorch/raise.h"

#include <atomic>
#include <utility>

#include <torch/csrc/jit/runtime/interpreter.h>

#include "memory/fork.h"
#include "util/mutex.h"

namespace remat {
namespace {

std::atomic<extension::ErrorTranslator> g_translator{nullptr};

struct {
  Mutex mutex;
  int errors REMAT_GUARDED_BY(mutex) = 0;
  bool passed_on_before REMAT_GUARDED_BY(mutex) = false;
} g_in_flight;
[[maybe_unused]] const bool kRegistered = (free_in_children(g_in_flight.mutex), true);

}  // namespace

extension::ErrorTranslator error_translator() { return g_translator; }

namespace extension {

void set_error_translator(ErrorTranslator translator) { g_translator = translator; }

ErrorInFlight::ErrorInFlight() noexcept {
  const MutexLock lock(g_in_flight.mutex);
  if (g_in_flight.errors++ > 0) return;
  g_in_flight.passed_on_before = std::exchange(FLAGS_torch_jit_enable_rethrow_caught_exception, true);
}

ErrorInFlight::~ErrorInFlight() {
  const MutexLock lock(g_in_flight.mutex);
  if (--g_in_flight.errors == 0) FLAGS_torch_jit_enable_rethrow_caught_exception = g_in_flight.passed_on_before;
}

}  // namespace extension
}  // namespace remat
