// zoo/lstm.h -- a language model of LSTM cells (Zaremba et al. 2014), one call of a cell for each layer and token.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

struct LstmConfig {
  int64_t layers = 2;
  int64_t width = 512;
  int64_t vocab = 1024;
  double dropout = 0.2;  ///< on the embeddings and on the output of each layer; 0 <= dropout < 1
};

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_lstm(const LstmConfig& config);

}  // namespace remat::zoo
