// zoo/bert.h -- BERT (Devlin et al. 2019), and by settings RoBERTa and DistilBERT: post-norm encoder, attention that is
// not fused, a head that classifies texts or predicts masked tokens.
#pragma once

#include <memory>
#include <optional>

#include "zoo/model.h"

namespace remat::zoo {

enum class BertHead {
  kClassify,
  kMaskedTokens,  ///< its last layer is the embedding, with a bias of its own
};

/// The default is BERT-base.
struct BertConfig {
  int64_t layers = 12;
  int64_t width = 768;  ///< a multiple of heads
  int64_t heads = 12;
  int64_t hidden = 3072;  ///< of the feed-forward layers
  int64_t seq = 512;      ///< longest input, in tokens
  int64_t vocab = 30522;
  std::optional<int64_t> padding = std::nullopt;  ///< a token whose embedding gets no gradient
  int64_t types = 2;                              ///< of tokens: which of two texts one belongs to; 0: none
  int64_t classes = 2;                            ///< of a classification
  double dropout = 0.1;                           ///< after embeddings and projections; 0 <= dropout < 1
  double attention_dropout = 0.1;                 ///< on attention weights
  double classifier_dropout = 0.1;                ///< after the pooler
  double norm_eps = 1e-12;
  BertHead head = BertHead::kClassify;
  bool positions_after_padding = false;  ///< they count from padding + 1, padded tokens have that of padding: RoBERTa
  bool drops_pooled_input = false;       ///< the classifier's dropout is before the pooler too: RoBERTa
  bool drops_attended = true;            ///< dropout after attention's last layer: not DistilBERT
  bool pools_by_relu = false;            ///< in place of tanh: DistilBERT
};

/// forward: (batch, 3, seq) integers -> (batch, classes) logits, or (batch, seq, vocab) where masked tokens are
/// predicted. The three rows are token numbers, their types, and the mask: 1 where a token is to be attended to, 0
/// where there is padding. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_bert(const BertConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const BertConfig& config);

}  // namespace remat::zoo
