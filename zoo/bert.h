// zoo/bert.h -- BERT (Devlin et al. 2019) with a classification head: post-norm encoder, attention that is not fused.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

/// The default is BERT-base.
struct BertConfig {
  int64_t layers = 12;
  int64_t width = 768;  ///< a multiple of heads
  int64_t heads = 12;
  int64_t hidden = 3072;  ///< of the feed-forward layers
  int64_t seq = 512;      ///< longest input, in tokens
  int64_t vocab = 30522;
  int64_t types = 2;  ///< of tokens: which of two texts one belongs to
  int64_t classes = 2;
  double dropout = 0.1;  ///< after embeddings, projections and the pooler, and on attention weights; 0 <= dropout < 1
};

/// forward: (batch, 3, seq) integers -> (batch, classes) logits. The three rows are token numbers, their types, and the
/// mask: 1 where a token is to be attended to, 0 where there is padding. Throws remat::Error for a config that cannot
/// be.
std::shared_ptr<Model> make_bert(const BertConfig& config);

}  // namespace remat::zoo
