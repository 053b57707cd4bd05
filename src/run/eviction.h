// src/run/eviction.h -- the online policy: which saved values to give up when memory runs short.
//
// The next one is always the value with the least recompute seconds per byte, where the seconds are those of the
// operators that its loss *adds* to the replays to come: operators that have to run anyway, because of what has been
// given up before, cost nothing more. (DTR, Kirisame et al. 2021, arXiv 2006.09616, evicts by cost / (size * staleness)
// with an evicted neighbourhood; here every value is needed exactly once more, in reverse order, so that staleness says
// nothing in the forward pass, and the order of need is known in backward.)
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "memory/ledger.h"
#include "record/tape.h"

namespace remat {

class OnlineEviction final : public memory::Reclaimer {
 public:
  explicit OnlineEviction(memory::Ledger& ledger) : ledger_(ledger) {}

  /// From now on values of `tape` are candidates, for as long as the tape lives.
  void watch(const std::shared_ptr<Tape>& tape);

  bool reclaim(int64_t bytes) override;
  [[noreturn]] void refuse(int64_t needed, int64_t request, int64_t limit) override;

  /// Bytes alive when the step began.
  int64_t baseline = 0;
  /// The smallest budget that the step is known to complete within, from what earlier ones took.
  std::optional<int64_t> smallest_known;
  /// What the last step that was recorded needs, for refusals; empty where that is not known, or there is a plan.
  std::string known_need;

 private:
  std::vector<std::shared_ptr<Tape>> living_tapes();
  int64_t lower_bound(int64_t request);

  memory::Ledger& ledger_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Tape>> tapes_;
};

/// Gives up values of `tape` worth at least `bytes`, or all it can. Returns the bytes freed.
int64_t evict(Tape& tape, int64_t bytes);

}  // namespace remat
