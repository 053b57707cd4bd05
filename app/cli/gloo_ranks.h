// cli/gloo_ranks.h -- ranks that are connected by c10d's process groups of Gloo.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cli/rank_group.h"

namespace remat::cli {

class GlooRanks final : public RankGroup {
 public:
  explicit GlooRanks(const RankPlace& place);

  /// For the model's collectives.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  void send(const std::vector<char>& message) override;
  std::vector<char> receive(int rank) override;
  Ranks session_ranks() const override;

 private:
  std::vector<std::vector<int64_t>> exchange(const std::vector<int64_t>& mine) override {
    return numbers_.gather(mine);
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_, sessions_;
  Ranks numbers_;
};

}  // namespace remat::cli
