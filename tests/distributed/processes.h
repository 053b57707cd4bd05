// tests/distributed/processes.h -- threads that take part in a group of c10d as processes do.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cli/gloo_group.h"

namespace remat::test {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Calls body(rank, join), where join(name) gives a group of all of them.
inline void on_ranks(int size, const std::function<void(int, const std::function<Group(std::string)>&)>& body) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, [&](const std::string& name) { return cli::make_gloo_group(store, rank, size, name); });
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace remat::test
