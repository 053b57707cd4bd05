// zoo/gpt.h -- a decoder in the manner of GPT-2: pre-norm blocks, fused causal attention, tied embedding.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

struct GptConfig {
  int64_t layers = 12;
  int64_t width = 512;  ///< a multiple of heads
  int64_t heads = 8;
  int64_t seq = 256;  ///< longest input, in tokens
  int64_t vocab = 8192;
  int64_t hidden = 0;            ///< of the feed-forward layers; 0: four times the width
  double dropout = 0.1;          ///< on embeddings and residual branches; 0 <= dropout < 1
  double attention_dropout = 0;  ///< on attention weights; more than 0 is slow, since no kernel fuses it
  double norm_eps = 1e-5;
};

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_gpt(const GptConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const GptConfig& config);

}  // namespace remat::zoo
