// remat/state_pager.h -- tensors that are in a file while nobody uses them: what paged optimizers are made of.
//
//   remat::StatePager pager("/scratch");
//   auto state = pager.add();             // of one parameter
//   state->store({exp_avg, exp_avg_sq});  // begins to write; to be forgotten by the caller
//   ...
//   auto tensors = state->fetch();        // reads, and begins to read what was fetched after it the last time
//   ...                                   // updates them
//   state->store(std::move(tensors));
//   ...
//   pager.end_round();                    // nothing is in memory any more
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat {

/// What was read and written since the pager was made.
struct PagingReport {
  int64_t written_bytes = 0;    ///< to the file
  int64_t read_bytes = 0;       ///< from it
  double write_seconds = 0;     ///< while at least one write was in progress: bytes by these are the bandwidth
  double read_seconds = 0;      ///< the same of reads
  double waited_seconds = 0;    ///< that the caller's thread waited for the file
  int64_t file_bytes = 0;       ///< length of the file
  int64_t paged_bytes = 0;      ///< of state in the file now
  int64_t unwritten_bytes = 0;  ///< of state that is in memory, since it could not be written
};

/// State tensors of one parameter. Not thread-safe, nor are those of one pager together.
class PagedState {
 public:
  ~PagedState();
  PagedState(const PagedState&) = delete;
  PagedState& operator=(const PagedState&) = delete;

  /// Is it dense, on the CPU, and no part of an autograd graph?
  static bool can_store(const at::Tensor& tensor);
  /// Begins to write these tensors, which take the place of what was here; they are let go of when they are written. A
  /// write that fails leaves them in memory: see StatePager::take_failure(). Waits for the write before this one.
  void store(std::vector<at::Tensor> tensors);
  /// Returns the tensors, with the bits that they had, and the same again until store() or give_back() is called: a
  /// caller that was interrupted loses nothing. Throws Error where they can't be read, or have other bytes than were
  /// written.
  std::vector<at::Tensor> fetch();
  /// The tensors that fetch() has returned are as they were, and to be forgotten by the caller: nothing is written
  /// anew.
  void give_back();
  /// Returns copies.
  std::vector<at::Tensor> read();
  /// Are no tensors here?
  bool empty() const;

 private:
  friend class StatePager;
  struct Impl;
  explicit PagedState(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

/// At most three parameters' state is in memory: that which is updated, the next one, which is read ahead, and the last
/// one, until it is written. Memory is the CPU allocator's, so that budgets count it; two threads and 8 MiB come
/// beside.
class StatePager {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();  ///< as much as the disk has

  /// The state is in a file of `directory` that has no name: it takes `limit_bytes` at most, and is gone when the
  /// process ends. Throws Error where none can be made there, and for a limit below 4096 bytes.
  explicit StatePager(const std::string& directory, int64_t limit_bytes = kNoLimit);
  ~StatePager();
  StatePager(const StatePager&) = delete;
  StatePager& operator=(const StatePager&) = delete;

  /// Place for the state of one more parameter. It may outlive the pager.
  std::shared_ptr<PagedState> add();
  /// After the last parameter of a step: returns when all is written, and what comes next is not read ahead.
  void end_round();
  /// Why a write failed, once: for a warning.
  std::optional<std::string> take_failure();
  PagingReport report() const;  ///< so far

 private:
  friend class PagedState;
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace remat
