// zoo/decoder_config.h -- what a decoder is made of, and what kinds of them do differently.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zoo/rotary.h"

namespace remat::zoo {

enum class GateActivation {
  kSilu,
  kGeluTanh,  ///< GELU by its approximation with tanh
};

/// The default has the shape of Llama 3.2 1B.
struct DecoderConfig {
  int64_t layers = 16;
  int64_t width = 2048;
  int64_t heads = 32;
  int64_t key_heads = 8;  ///< heads of keys and values, a divisor of heads
  int64_t head_width = 64;
  int64_t hidden = 8192;  ///< of the feed-forward layers
  int64_t vocab = 128256;
  std::optional<int64_t> padding = std::nullopt;  ///< a token whose embedding gets no gradient
  double norm_eps = 1e-5;
  bool tied = true;  ///< the output layer is the embedding
  RotaryConfig rotary = {.width = 64, .base = 500000};

  bool qkv_bias = false;          ///< queries, keys and values have biases
  bool projection_bias = false;   ///< attention's last layer has one
  bool feedforward_bias = false;  ///< the feed-forward layers have
  bool fused =
      false;  ///< queries, keys and values are one layer, and so are both that the feed-forward layers begin with
  bool query_norms = false;      ///< each head's queries and keys are normalized
  bool branch_norms = false;     ///< what attention and feed-forward layers give is normalized before it is added
  bool norms_about_one = false;  ///< norms multiply by 1 + weight
  GateActivation activation = GateActivation::kSilu;
  double embedding_scale = 1;                            ///< what embedded tokens are multiplied by
  std::optional<double> attention_scale = std::nullopt;  ///< of scores; left out: 1 / sqrt(head_width)
  double attention_cap = 0;  ///< scores become cap tanh(score / cap); 0: they stay. No kernel fuses it
  double logit_cap = 0;      ///< the same of the logits

  int64_t window = 0;  ///< how many tokens a layer with a window sees: the one at its place and those before it
  std::vector<bool> windowed = {};                           ///< which layers have a window; empty: none
  std::optional<RotaryConfig> window_rotary = std::nullopt;  ///< theirs; left out: `rotary`
};

}  // namespace remat::zoo
