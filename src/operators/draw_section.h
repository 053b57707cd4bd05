// src/operators/draw_section.h -- operators that draw random numbers, one at a time in the process.
//
// The generator's state before an operator says what the operator draws only if nobody else draws in between, and all
// threads share PyTorch's default generators: a thread that loads data with torch.rand() would change what a dropout
// draws after its generator's state was captured. So while anything is recorded, operators of all threads that draw
// wait for each other. (A generator's own mutex cannot be held around an operator, which locks it.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace remat {

/// From its construction to leave() or its destruction, which may come on another thread. A thread's may be nested.
class DrawSection {
 public:
  /// Waits while another thread is in a section: up to two seconds, since that thread may wait for something that this
  /// one holds. Then it goes on beside it, and sets what the other one gave as `waited_for`, which must not be
  /// destroyed.
  explicit DrawSection(std::atomic<bool>* waited_for = nullptr);
  ~DrawSection() { leave(); }
  DrawSection(const DrawSection&) = delete;
  DrawSection& operator=(const DrawSection&) = delete;

  /// Has no other thread been in a section since this one was entered?
  bool is_alone() const;
  void leave();

 private:
  enum class State : uint8_t { kOwner, kBeside, kLeft };
  State state_ = State::kOwner;
  bool alone_at_first_ = true;
  uint64_t besides_at_first_ = 0;
};

/// While the result lives, PyTorch's operators that draw are in a section, on all threads. Thread-safe.
std::shared_ptr<const void> watch_draws();

/// Have operators of more than one thread been seen, while any watch lived? Thread-safe.
bool several_threads_run_operators();

}  // namespace remat
