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
  double dropout = 0.1;  ///< on embeddings and residual branches, none inside attention; 0 <= dropout < 1
};

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_gpt(const GptConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const GptConfig& config);

}  // namespace remat::zoo
