#include "tiles/head.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "tiles/row_sum.h"

namespace remat::tiles {
namespace {

at::Tensor logits_of(const Head& head, int64_t begin, int64_t rows) {
  return at::linear(head.input.narrow(0, begin, rows), head.weight, head.bias).to(head.loss_type);
}

/// In place: a tile of logits is needed no more.
at::Tensor log_softmax_(at::Tensor logits) { return at::_log_softmax_out(logits, logits, 1, /*half_to_float=*/false); }

/// The gradients of weights and bias, and with a class_part that of the input, by blocks of classes of all tokens.
void add_column_gradients(const Head& head, const at::Tensor& picked, const Normalisers& of_tokens,
                          const HeadTiles& tiles, bool needs_input, HeadGradients& result) {
  for (int64_t begin = 0; begin < head.size(); begin += tiles.columns) {
    const int64_t count = std::min(tiles.columns, head.size() - begin);
    // One column more than the block has, for the gradients of tokens whose class is not in the block: the kernel
    // subtracts each row's sum, in which they are.
    at::Tensor log_probabilities = at::zeros({head.tokens(), count + 1}, head.input.options().dtype(head.loss_type));
    {
      const at::Tensor bias = head.bias.defined() ? head.bias.narrow(0, begin, count) : head.bias;
      at::Tensor block = log_probabilities.narrow(1, 0, count);
      block.copy_(at::linear(head.input, head.weight.narrow(0, begin, count), bias));
      block.sub_(of_tokens.largest).sub_(of_tokens.log_sum);
    }
    at::Tensor gradient = at::zeros_like(log_probabilities);
    const at::Tensor place = head.classes - begin;
    gradient.scatter_(1, at::where((place >= 0).logical_and_(place < count), place, count).unsqueeze(1),
                      picked.unsqueeze(1));
    at::_log_softmax_backward_data_out(gradient, gradient, log_probabilities, 1, head.loss_type);
    log_probabilities.reset();
    gradient = gradient.narrow(1, 0, count).to(head.input.scalar_type()).contiguous();
    if (result.weight.defined()) {
      at::Tensor rows_of_weight = result.weight.narrow(0, begin, count);
      at::mm_out(rows_of_weight, gradient.t(), head.input);
    }
    if (result.bias.defined()) result.bias.narrow(0, begin, count).copy_(gradient.sum(0));
    if (needs_input) add_products(result.input, gradient.t(), head.weight.narrow(0, begin, count), tiles.class_part);
  }
}

}  // namespace

at::Tensor gradient_of_logits(const Head& head, const TokenValues& gradients, int64_t begin,
                              const at::Tensor& log_probabilities) {
  const int64_t rows = log_probabilities.size(0);
  const auto column = [&](const at::Tensor& values) { return values.narrow(0, begin, rows).unsqueeze(1); };
  at::Tensor gradient = at::zeros_like(log_probabilities);
  gradient.scatter_(1, column(head.classes), column(gradients.picked));
  if (head.has_sums) {
    const at::Tensor sums = column(gradients.sums);
    gradient.add_(head.class_weight.defined() ? at::mul(sums, head.class_weight) : sums);
  }
  at::_log_softmax_backward_data_out(gradient, gradient, log_probabilities, 1, head.loss_type);
  return gradient.to(head.input.scalar_type());
}

at::Tensor log_probabilities_of(const Head& head, int64_t begin, int64_t rows) {
  return log_softmax_(logits_of(head, begin, rows));
}

HeadValues forward(const Head& head, const HeadTiles& tiles) {
  const at::TensorOptions options = head.input.options().dtype(head.loss_type);
  HeadValues result{{at::empty({head.tokens()}, options), {}}, {}};
  at::Tensor &picked = result.values.picked, &sums = result.values.sums;
  if (head.has_sums) sums = at::empty({head.tokens()}, options);
  if (tiles.has_columns()) {
    result.normalisers = {at::empty({head.tokens(), 1}, options), at::empty({head.tokens(), 1}, options)};
  }
  for (int64_t begin = 0, count = 0; begin < head.tokens(); begin += count) {
    count = tiles.rows.count(begin, head.tokens());
    at::Tensor logits = logits_of(head, begin, count);
    if (tiles.has_columns()) {
      result.normalisers.largest.narrow(0, begin, count).copy_(logits.amax(1, /*keepdim=*/true));
    }
    at::Tensor log_probabilities = log_softmax_(std::move(logits));
    if (tiles.has_columns()) {
      // The largest logit's log-probability is 0 - log_sum.
      result.normalisers.log_sum.narrow(0, begin, count).copy_(log_probabilities.amax(1, /*keepdim=*/true).neg_());
    }
    const at::Tensor classes = head.classes.narrow(0, begin, count).unsqueeze(1);
    picked.narrow(0, begin, count).copy_(log_probabilities.gather(1, classes).squeeze(1));
    if (!head.has_sums) continue;
    if (head.class_weight.defined()) log_probabilities.mul_(head.class_weight);
    sums.narrow(0, begin, count).copy_(log_probabilities.sum(1));
  }
  return result;
}

HeadGradients backward(const Head& head, const TokenValues& gradients, const Normalisers& normalisers,
                       const HeadNeeds& needs, const HeadTiles& tiles) {
  HeadGradients result;
  const bool adds_classes = tiles.has_columns() && tiles.class_part != 0;
  if (tiles.has_columns()) {
    if (needs.weight) result.weight = at::empty_like(head.weight);
    if (needs.bias) result.bias = at::empty_like(head.bias);
    const bool needs_input = needs.input && adds_classes;
    if (needs.weight || needs.bias || needs_input) {
      add_column_gradients(head, gradients.picked, normalisers, tiles, needs_input, result);
    }
    if (!needs.input || adds_classes) return result;
  }
  if (needs.input) result.input = at::empty({head.tokens(), head.width()}, head.input.options());
  RowSum bias(head.tokens(), tiles.in_fours);
  for (int64_t begin = 0, count = 0; begin < head.tokens(); begin += count) {
    count = tiles.rows.count(begin, head.tokens());
    at::Tensor log_probabilities = log_probabilities_of(head, begin, count);
    const at::Tensor gradient = gradient_of_logits(head, gradients, begin, log_probabilities);
    log_probabilities.reset();
    if (needs.input) {
      at::Tensor of_input = result.input.narrow(0, begin, count);
      at::mm_out(of_input, gradient, head.weight);
    }
    if (tiles.has_columns()) continue;
    if (needs.weight) add_products(result.weight, gradient, head.input.narrow(0, begin, count), tiles.rows.part);
    if (needs.bias) bias.add(gradient);
  }
  if (needs.bias && !tiles.has_columns()) result.bias = bias.total();
  return result;
}

}  // namespace remat::tiles
