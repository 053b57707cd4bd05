// zoo/llama.h -- a decoder in the manner of Llama (Touvron et al. 2023): RMS norms, rotary positions, grouped-query
// attention, gated feed-forward layers, no biases.
#pragma once

#include <memory>
#include <optional>

#include "zoo/model.h"

namespace remat::zoo {

/// How Llama 3.1 stretches rotary positions beyond the length that it was trained on: wavelengths above
/// trained_seq / low_frequency become `factor` times longer, those below trained_seq / high_frequency stay.
struct RopeScaling {
  double factor = 32;
  double low_frequency = 1;
  double high_frequency = 4;
  int64_t trained_seq = 8192;
};

/// The default has the shape of Llama 3.2 1B.
struct LlamaConfig {
  int64_t layers = 16;
  int64_t width = 2048;
  int64_t heads = 32;
  int64_t key_heads = 8;  ///< heads of keys and values, a divisor of heads
  int64_t head_width = 64;
  int64_t hidden = 8192;  ///< of the feed-forward layers
  int64_t vocab = 128256;
  std::optional<int64_t> padding = std::nullopt;  ///< a token whose embedding gets no gradient
  double norm_eps = 1e-5;
  double rope_theta = 500000;  ///< base of the rotary positions' wavelengths
  std::optional<RopeScaling> rope_scaling = std::nullopt;
  bool tied = true;  ///< the output layer is the embedding
};

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. No dropout. Throws remat::Error for a config that
/// cannot be.
std::shared_ptr<Model> make_llama(const LlamaConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const LlamaConfig& config);

}  // namespace remat::zoo
