// src/plan/chain.h -- a graph as a chain of blocks, for the planners whose papers are about chains.
//
// A block is a run of successive operators. A value that is made before a cut and read behind it crosses the cut. The
// values that cross a cut are the state from which the later blocks can be replayed, so cuts belong where few bytes
// cross.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/candidates.h"
#include "plan/planners.h"

namespace remat::planners {

/// The places where the forward pass can be cut: place p is before operator p.
///
/// A plan should keep the values that cross a cut, but it can keep only saved ones. Of the others, those that are made
/// from leaves alone (a mask, say) can be recomputed behind the cut. Where any other unsaved value crosses, a replay
/// would reach back beyond the cut, so the place cannot be cut.
class Cuts {
 public:
  enum class Measure : uint8_t { kSeconds, kBytes };

  explicit Cuts(const Graph& graph);

  /// The bytes that a cut at `place` keeps. A value that must be recomputed behind it counts by its seconds, at the
  /// rate of the bytes of all droppable values per second of the forward pass.
  double width(int32_t place) const { return kept_bytes_[place] + lost_seconds_[place] * bytes_per_second_; }
  /// Seconds to recompute the values that cross there and cannot be kept.
  double lost_seconds(int32_t place) const { return lost_seconds_[place]; }
  /// The cuts of at most `blocks` blocks, each with about the same replay seconds or bytes of droppable results:
  /// ascending, with 0 and the number of operators at the ends. A cut is moved to the narrowest place within half a
  /// block (of equally narrow ones, to where the kept values took longest to make, then to the nearest). Where there
  /// are at most `blocks` places that can be cut, all of them are.
  std::vector<int32_t> divide(int64_t blocks, Measure measure) const;

 private:
  std::vector<double> kept_bytes_, kept_seconds_, lost_seconds_;  ///< by place
  std::vector<int64_t> lost_;                                     ///< by place: values for which it cannot be cut
  double bytes_per_second_ = 0;
  std::vector<double> seconds_, bytes_;  ///< before each place
};

struct Chain {
  /// `places`: as from Cuts::divide(). `packed`, by value, may be empty: values that will be packed are left out, since
  /// no replay has to recompute them.
  Chain(const Graph& graph, std::vector<int32_t> places, const std::vector<bool>& packed = {});

  int32_t blocks() const { return static_cast<int32_t>(seconds.size()); }

  /// A droppable value: made in a block, it crosses the ends of the blocks from this one to before `end`.
  struct Value {
    int32_t id = -1;
    int32_t block = 0;
    int32_t end = 0;
    int64_t bytes = 0;
  };
  std::vector<Value> values;
  std::vector<int32_t> cuts;
  std::vector<double> seconds;       ///< of a replay, by block
  std::vector<double> tail_seconds;  ///< the same where all values that cross its end are held
  std::vector<int32_t> block_of;     ///< by operator
};

/// From which run of its block on each value of a chain is held, as in papers on chains. Run 0 is the forward pass.
struct ChainSchedule {
  /// A later run than any.
  static constexpr int32_t kNever = INT32_MAX;

  explicit ChainSchedule(int32_t blocks) : state(blocks, kNever), inside(blocks, kNever), runs(blocks, 0) {}

  std::vector<int32_t> state;   ///< by block: the run after which the values that cross its end are held
  std::vector<int32_t> inside;  ///< by block: the run after which all its values are held, because its backward is next
  std::vector<int32_t> runs;    ///< by block: all runs
};

/// The plan that holds each value from the run on that the schedule says.
Actions actions_of(const Graph& graph, const Chain& chain, const ChainSchedule& schedule);

}  // namespace remat::planners
