// zoo/mlp.h -- multilayer perceptrons: blocks of Linear and GELU.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

struct MlpConfig {
  int64_t layers = 40;
  int64_t width = 1024;
};

/// forward: (batch, width) -> (batch, width). Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_mlp(const MlpConfig& config);

struct WindowMlpConfig {
  int64_t layers = 4;
  int64_t width = 512;
  int64_t seq = 32;        ///< tokens in the window
  int64_t embedding = 16;  ///< numbers that stand for one token
  int64_t vocab = 256;
};

/// A next-token model (Bengio et al. 2003): embeds a window of tokens, then blocks, then one score for every token.
/// forward: (batch, seq) token numbers -> (batch, vocab) logits. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_window_mlp(const WindowMlpConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const WindowMlpConfig& config);

}  // namespace remat::zoo
