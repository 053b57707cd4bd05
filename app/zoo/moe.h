// zoo/moe.h -- a decoder whose feed-forward layers are mixtures of experts (Shazeer et al. 2017, as in Mixtral).
#pragma once

#include <memory>
#include <utility>

#include "zoo/model.h"

namespace remat::zoo {

struct MoeConfig {
  int64_t layers = 6;
  int64_t width = 512;  ///< a multiple of heads
  int64_t heads = 8;
  int64_t hidden = 1024;  ///< of each expert
  int64_t experts = 8;
  int64_t top_k = 2;  ///< experts that each token goes through, those with the highest scores; at most experts
  int64_t seq = 128;  ///< longest input, in tokens
  int64_t vocab = 8192;
};

class MoeModel : public Model {
 public:
  /// forward(), and the load-balancing loss of the tokens that went through it (Fedus et al. 2022): the mean over
  /// layers of experts * sum_i f_i p_i, where f_i is the share of choices that fell on expert i and p_i the mean of its
  /// probability. It is 1 where both are uniform and at most `experts`. Training adds about a hundredth of it.
  virtual std::pair<at::Tensor, at::Tensor> forward_with_balance(at::Tensor tokens) = 0;
};

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. Which operators run depends on the data: each
/// expert gets the tokens that chose it, and one that no token chose does not run. Throws remat::Error for a config
/// that cannot be.
std::shared_ptr<MoeModel> make_moe(const MoeConfig& config);

}  // namespace remat::zoo
