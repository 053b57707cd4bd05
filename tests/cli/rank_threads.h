// tests/cli/rank_threads.h -- ranks that are threads of the test.
#pragma once

#include <barrier>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cli/rank_group.h"

namespace remat::test {

/// What the ranks share.
struct Wires {
  explicit Wires(size_t ranks) : numbers(ranks), messages(ranks), meeting(static_cast<std::ptrdiff_t>(ranks)) {}

  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::vector<int64_t>> numbers;
  std::vector<std::deque<std::vector<char>>> messages;  ///< on their way to rank 0
  std::barrier<> meeting;
};

class RankThread final : public cli::RankGroup {
 public:
  RankThread(Wires& wires, size_t rank) : wires_(wires), rank_(rank) {}

  int rank() const override { return static_cast<int>(rank_); }
  int size() const override { return static_cast<int>(wires_.numbers.size()); }
  void send(const std::vector<char>& message) override {
    const std::lock_guard lock(wires_.mutex);
    wires_.messages[rank_].push_back(message);
    wires_.arrived.notify_all();
  }
  std::vector<char> receive(int rank) override {
    std::unique_lock lock(wires_.mutex);
    auto& messages = wires_.messages[static_cast<size_t>(rank)];
    wires_.arrived.wait(lock, [&] { return !messages.empty(); });
    auto message = std::move(messages.front());
    messages.pop_front();
    return message;
  }
  Ranks session_ranks() const override { return {}; }

 private:
  std::vector<std::vector<int64_t>> exchange(const std::vector<int64_t>& mine) override {
    wires_.numbers[rank_] = mine;
    wires_.meeting.arrive_and_wait();
    auto all = wires_.numbers;
    wires_.meeting.arrive_and_wait();
    return all;
  }

  Wires& wires_;
  size_t rank_;
};

/// Runs `work` on so many ranks, each a thread, but rank 0 on this one. It must not throw but on rank 0.
inline void on_ranks(size_t count, const std::function<void(cli::RankGroup&)>& work) {
  Wires wires(count);
  std::vector<std::jthread> others;
  for (size_t rank = 1; rank < count; ++rank) {
    others.emplace_back([&, rank] {
      RankThread own(wires, rank);
      work(own);
    });
  }
  RankThread first(wires, 0);
  work(first);
}

}  // namespace remat::test
