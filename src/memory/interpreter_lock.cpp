#include "memory/interpreter_lock.h"

#include <remat/extension.h>

namespace remat {
namespace {

extension::InterpreterLock g_lock = {.release = nullptr, .acquire = nullptr};

}  // namespace

void extension::set_interpreter_lock(InterpreterLock lock) { g_lock = lock; }

WithoutInterpreterLock::WithoutInterpreterLock() : released_(g_lock.release == nullptr ? nullptr : g_lock.release()) {}
WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (released_ != nullptr) g_lock.acquire(released_);
}

void check_interrupt() {
  if (g_lock.check_interrupt != nullptr) g_lock.check_interrupt();
}

}  // namespace remat
