// A reclaimer for tests: gives up the tensors it was handed, last one first.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include <remat/error.h>

#include "memory/ledger.h"

namespace remat::memory {

struct FakeReclaimer : Reclaimer {
  bool reclaim(int64_t bytes) override {
    asked = bytes;
    ++calls;
    at::Tensor freed;  // outside the lock: its end re-enters the ledger
    std::lock_guard lock(mutex);
    if (tensors.empty()) return false;
    freed = std::move(tensors.back());
    tensors.pop_back();
    return true;
  }
  bool refuses() override { return refusing; }
  [[noreturn]] void refuse(int64_t needed, int64_t request, int64_t limit) override {
    ++refusals;
    throw BudgetError("[test] needed " + std::to_string(needed) + ", request " + std::to_string(request), limit, needed,
                      std::nullopt);
  }

  std::atomic<bool> refusing{true};
  std::mutex mutex;
  std::vector<at::Tensor> tensors;
  std::atomic<int64_t> asked{0};
  std::atomic<int> calls{0};
  std::atomic<int> refusals{0};
};

}  // namespace remat::memory
