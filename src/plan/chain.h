// src/plan/chain.h -- a graph as a chain of blocks, for the planners whose papers are about chains.
//
// A block is a run of operators. What later blocks read of earlier ones crosses the cut between them: it is the state
// from which the later ones can be replayed. Cuts belong where little crosses.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/candidates.h"
#include "plan/planners.h"

namespace remat::planners {

/// The places where the forward pass can be cut: place p is before operator p.
///
/// What crosses should be kept, but not all of it may be. What is made from leaves alone (a mask, say) can be made
/// again behind the cut. Where other such values cross, a replay would reach back beyond the cut: it is no place to
/// cut.
class Cuts {
 public:
  enum class Measure : uint8_t { kSeconds, kBytes };

  explicit Cuts(const Graph& graph);

  /// What a cut at `place` keeps, in bytes. What has to be made again counts as many bytes as are worth the seconds,
  /// where all droppable values together are worth the whole forward pass.
  double width(int32_t place) const { return kept_bytes_[place] + lost_seconds_[place] * bytes_per_second_; }
  /// Seconds to make again what crosses there and cannot be kept.
  double lost_seconds(int32_t place) const { return lost_seconds_[place]; }
  /// At most `blocks` blocks with about the same replay seconds, or bytes of droppable results, each. A cut goes to the
  /// narrowest place that is at most half a block away (of such, where what is kept took longest to make, then the
  /// nearest); where there are no more places, to each of them. Ascending, with 0 and the number of operators at the
  /// ends.
  std::vector<int32_t> divide(int64_t blocks, Measure measure) const;

 private:
  std::vector<double> kept_bytes_, kept_seconds_, lost_seconds_;  ///< by place
  std::vector<int64_t> lost_;                                     ///< values that make it no place to cut
  double bytes_per_second_ = 0;
  std::vector<double> seconds_, bytes_;  ///< before each place
};

struct Chain {
  /// `places`: as from Cuts::divide(). Values in `packed`, by value, are left out, because they will be packed: they
  /// are always there. It may be empty.
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
  std::vector<double> tail_seconds;  ///< the same where all that crosses its end is held
  std::vector<int32_t> block_of;     ///< by operator
};

/// When the values of a chain are held, as papers on chains describe it. Runs of a block are counted from 0, which is
/// the forward pass.
struct ChainSchedule {
  /// A later run than any.
  static constexpr int32_t kNever = INT32_MAX;

  explicit ChainSchedule(int32_t blocks) : state(blocks, kNever), inside(blocks, kNever), runs(blocks, 0) {}

  std::vector<int32_t> state;   ///< the run of each block after which what crosses its end is held
  std::vector<int32_t> inside;  ///< the run of each block after which all that it made is held: its backward is next
  std::vector<int32_t> runs;    ///< of each block in all
};

/// The actions that hold each value from the run on from which the schedule holds it.
Actions actions_of(const Graph& graph, const Chain& chain, const ChainSchedule& schedule);

}  // namespace remat::planners
