// src/tiles/head.h -- a linear layer and the log-softmax of its results, in tiles. Below autograd: whoever calls it
// differentiates what is made of the results.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tiles/row_sum.h"
#include "tiles/rows.h"

namespace remat::tiles {

/// What the head is given. All logits are those of at::linear(input, weight, bias), as `loss_type`.
struct Head {
  at::Tensor input;         ///< (tokens, width)
  at::Tensor weight;        ///< (classes, width), contiguous
  at::Tensor bias;          ///< (classes), or undefined
  at::Tensor classes;       ///< (tokens), int64: the class whose log-probability is taken of each token
  at::Tensor class_weight;  ///< (classes), of `loss_type`, or undefined: factors in `sums`
  at::ScalarType loss_type = at::kFloat;
  bool has_sums = false;  ///< Are the sums over all classes asked for?

  int64_t tokens() const { return input.size(0); }
  int64_t width() const { return input.size(1); }
  int64_t size() const { return weight.size(0); }
};

/// What is made of the logits of each token, (tokens); or the gradients of these.
struct TokenValues {
  at::Tensor picked;  ///< the log-probability of the token's class
  at::Tensor
      sums;  ///< over all classes, of their log-probabilities, each times its class_weight; undefined unless has_sums
};

/// Which gradients are asked for.
struct HeadNeeds {
  bool input = false, weight = false, bias = false;

  bool any() const { return input || weight || bias; }
};

/// Undefined where not asked for.
struct HeadGradients {
  at::Tensor input, weight, bias;
};

/// The tiles of a head.
struct HeadTiles {
  RowTiles rows;
  int64_t columns = 0;                 ///< as in TileChoice
  std::vector<Columns> in_fours = {};  ///< of the gradient of logits, see RowSum
  /// With columns: classes that are added at a time to the gradient of the input. 0: it is made by tiles of rows, of
  /// logits that are computed once more.
  int64_t class_part = 0;

  bool has_columns() const { return columns != 0; }
};

/// Of each token, (tokens, 1): its log-probabilities are (logits - largest) - log_sum.
struct Normalisers {
  at::Tensor largest, log_sum;
};

struct HeadValues {
  TokenValues values;
  Normalisers normalisers;  ///< undefined for tiles without columns
};

HeadValues forward(const Head& head, const HeadTiles& tiles);

/// `normalisers`: of forward(). Tiles with columns are for heads without sums.
HeadGradients backward(const Head& head, const TokenValues& gradients, const Normalisers& normalisers,
                       const HeadNeeds& needs, const HeadTiles& tiles);

/// (rows, classes): those of the tokens from `begin` on.
at::Tensor log_probabilities_of(const Head& head, int64_t begin, int64_t rows);
/// Of the logits of tokens from `begin` on, of which `log_probabilities` are known. As the input's type.
at::Tensor gradient_of_logits(const Head& head, const TokenValues& gradients, int64_t begin,
                              const at::Tensor& log_probabilities);

}  // namespace remat::tiles
