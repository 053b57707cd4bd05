// cli/rank_group.h -- the processes (ranks) that train together: all run the same program, and what they have to agree
// on they exchange in collectives, which block until all ranks have called them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remat/error.h>
#include <remat/ranks.h>

#include "cli/rank_place.h"

namespace remat::cli {

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A message to rank 0, which receives as many; it may be empty.
  virtual void send(const std::vector<char>& message) = 0;
  virtual std::vector<char> receive(int rank) = 0;
  /// For a session (SessionOptions::ranks), on connections of its own.
  virtual Ranks session_ranks() const = 0;

  // Collectives.

  /// What each rank gives, by rank; all give as many numbers.
  std::vector<std::vector<int64_t>> gather(std::vector<int64_t> mine);
  std::vector<std::string> gather_text(const std::string& mine);
  /// The sums over all ranks, one for each of `mine`.
  std::vector<double> sums(const std::vector<double>& mine);
  /// The largest of all ranks.
  uint64_t most(uint64_t mine);
  /// Does `work` on all ranks. Where it throws on some, all throw: those their own exception, the others Error, as in
  /// "[ranks] rank 1 cannot begin: [data] ...", where `doing` is "begin".
  void together(const std::string& doing, const std::function<void()>& work);
  /// The number of a signal that any rank had noted when they last agreed on something; 0 for none.
  int stop_signal() const { return stop_signal_; }

  /// Is this rank in the middle of something that the others may wait in? So it stays where an exception ends that, but
  /// for one that all ranks throw. Nothing can be done together any more then.
  bool is_apart() const { return apart_; }
  void set_apart(bool apart) { apart_ = apart; }

 protected:
  virtual std::vector<std::vector<int64_t>> exchange(const std::vector<int64_t>& mine) = 0;

 private:
  int stop_signal_ = 0;
  bool apart_ = false;
};

/// Connects this process with the others; blocks until all are there. Throws Error as launch_ranks()
/// does.
std::unique_ptr<RankGroup> join_ranks(const RankPlace& place);

}  // namespace remat::cli
