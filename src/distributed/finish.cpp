#include <chrono>
#include <thread>

#include <remat/distributed.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace remat {

void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  work->wait();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (work.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

}  // namespace remat
