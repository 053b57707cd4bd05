// src/distributed/finished_work.h -- waiting for a collective until its tensors are free.
#pragma once

#include <chrono>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace remat {

/// Waits for `work`, and until the process group's own thread lets go of it: up to then that holds the collective's
/// tensors, whose bytes would count in what comes next. A busy machine may take milliseconds for it; where something
/// else holds the work on purpose, this ends all the same.
inline void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  work->wait();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (work.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

}  // namespace remat
