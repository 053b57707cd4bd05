#include "tiles/head_trial.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "device/unobserved.h"
#include "tiles/full_size.h"
#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Tokens in the tiles that are tried first.
constexpr int64_t kRows = 192;
static_assert(kRows + kShortRest == kFewestTiledTokens);
/// Tokens in a tile where nothing is added over them and a tile is an eighth of the logits at most: with as few as
/// kRows has, products take up to a third longer.
constexpr int64_t kManyRows = 384;
/// A trial with some of the classes takes this many at most, and at least.
constexpr int64_t kMostClasses = 2048, kFewestClasses = 256;
/// Bytes that every trial may hold.
constexpr int64_t kSmall = int64_t(32) << 20;
/// Blocks of classes are multiples of it, and have at most so many.
constexpr int64_t kBlock = 64, kMostInBlock = 1536;
/// Such gradients come through a softmax and a mean.
constexpr double kDeviation = 1e-3;

struct Outcome {
  TokenValues values;
  HeadGradients gradients;
};

/// A head with `classes` of the classes and numbers of its own.
struct Sample {
  Head head;
  TokenValues gradients;

  Sample(const Head& of, int64_t classes) : head(of) {
    head.input = sample_like(of.input, 1);
    head.weight = sample_like(of.weight.narrow(0, 0, classes), 2, 0.1);
    if (of.bias.defined()) head.bias = sample_like(of.bias.narrow(0, 0, classes), 3);
    if (of.class_weight.defined()) head.class_weight = sample_like(of.class_weight.narrow(0, 0, classes), 4);
    head.classes = at::arange(of.tokens(), of.classes.options()).remainder_(classes);
    gradients.picked = sample(5);
    if (of.has_sums) gradients.sums = sample(6);
  }

  Outcome run(const HeadNeeds& needs, const HeadTiles& tiles) const {
    Outcome outcome;
    HeadValues made = forward(head, tiles);
    if (needs.any()) outcome.gradients = backward(head, gradients, made.normalisers, needs, tiles);
    outcome.values = std::move(made.values);
    return outcome;
  }

 private:
  at::Tensor sample(uint64_t seed) const {
    at::Tensor values = at::empty({head.tokens()}, head.input.options().dtype(head.loss_type));
    fill(values, seed, kDeviation);
    return values;
  }
};

bool agree(const at::Tensor& a, const at::Tensor& b) { return !a.defined() || have_same_bits(a, b); }

bool agree(const TokenValues& a, const TokenValues& b) { return agree(a.picked, b.picked) && agree(a.sums, b.sums); }

/// What trials of large heads may hold: as much as the backward pass does, a tile and the gradients.
int64_t bytes_of_backward(const Head& head, const HeadNeeds& needs) {
  const int64_t tile = kRows * head.size() * int64_t(c10::elementSize(head.loss_type));
  return tile + (needs.input ? int64_t(head.input.nbytes()) : 0) + (needs.weight ? int64_t(head.weight.nbytes()) : 0);
}

/// Are weights and biases as they are? Then nothing is added over tokens.
bool is_frozen(const HeadNeeds& needs) { return !needs.weight && !needs.bias; }

/// How many classes a sample has.
int64_t classes_of_sample(const Head& head, const HeadNeeds& needs) {
  const auto number = int64_t(c10::elementSize(head.loss_type));
  // Where nothing is added over tokens one thing after the other is compared: see logits_agree_by_rows().
  const int64_t inputs = needs.input && !is_frozen(needs) ? 3 : 1;
  const int64_t fixed = head.tokens() * head.width() * number * inputs;
  const int64_t of_class =
      number * ((is_frozen(needs) ? 2 : 3) * head.tokens() + head.width() * (needs.weight ? 3 : 1));
  if (3 * head.tokens() * head.size() * number <= kSmall) return head.size();
  const int64_t most = std::clamp((bytes_of_backward(head, needs) - fixed) / of_class, kFewestClasses, kMostClasses);
  if (head.size() <= most) return head.size();
  // As many classes beyond a multiple as there are of all: kernels treat the last columns by themselves.
  return most - (most - head.size() % kBlock) % kBlock;
}

/// Of a head that is frozen: has each row of logits and of their gradients the same bits in tiles?
bool logits_agree_by_rows(const Sample& sample, const HeadNeeds& needs, const RowTiles& rows) {
  const Head& head = sample.head;
  const auto in_tiles = [&rows](const at::Tensor& whole, const auto& make_tile) {
    for (int64_t begin = 0, count = 0; begin < whole.size(0); begin += count) {
      count = rows.count(begin, whole.size(0));
      if (!have_same_bits(make_tile(begin, count), whole.narrow(0, begin, count))) return false;
    }
    return true;
  };
  const HeadTiles all{.rows = one_tile(head.tokens())}, tiles{.rows = rows};
  if (!agree(forward(head, all).values, forward(head, tiles).values)) return false;
  const at::Tensor log_probabilities = log_probabilities_of(head, 0, head.tokens());
  if (!in_tiles(log_probabilities,
                [&](int64_t begin, int64_t count) { return log_probabilities_of(head, begin, count); })) {
    return false;
  }
  if (!needs.input) return true;
  const at::Tensor gradient = gradient_of_logits(head, sample.gradients, 0, log_probabilities);
  return in_tiles(gradient, [&](int64_t begin, int64_t count) {
    return gradient_of_logits(head, sample.gradients, begin, log_probabilities.narrow(0, begin, count));
  });
}

/// The products of their full size: logits, and gradients of weight and input.
class FullSize {
 public:
  FullSize(const Head& head, const HeadNeeds& needs)
      : head_(with_other_numbers(head)),
        logits_(head.tokens(), head.size(), head.input.options(),
                [of = head_](at::Tensor& out, int64_t begin, int64_t count) {
                  at::linear_out(out, of.input.narrow(0, begin, count), of.weight, of.bias);
                }),
        gradient_(repeating(head.tokens(), head.size(), 7, kDeviation, head.input.options())) {
    if (!gradient_.defined()) return;
    if (needs.input) {
      of_input_.emplace(gradient_, [weight = head_.weight](const at::Tensor& rows) { return at::mm(rows, weight); });
    }
    if (needs.weight) of_weight_.emplace(gradient_, head_.input);
  }

  bool is_known() const { return gradient_.defined() && logits_.is_known(); }  ///< memory could be mapped
  /// Have they the same bits in these tiles?
  bool agrees(const HeadTiles& tiles) const {
    if (!is_known()) return false;
    if (!logits_.is_same_in(tiles.rows) || (tiles.has_columns() && !logits_agree(tiles))) return false;
    if (of_input_ && !(tiles.class_part != 0 ? input_agrees(tiles) : of_input_->is_same_in(tiles.rows))) return false;
    return !of_weight_ || (tiles.has_columns() ? weight_agrees(tiles) : of_weight_->is_same_in(tiles.rows));
  }

 private:
  bool logits_agree(const HeadTiles& tiles) const {
    for (int64_t begin = 0; begin < head_.size(); begin += tiles.columns) {
      const int64_t count = std::min(tiles.columns, head_.size() - begin);
      const at::Tensor bias = head_.bias.defined() ? head_.bias.narrow(0, begin, count) : head_.bias;
      if (!logits_.is_same_block(at::linear(head_.input, head_.weight.narrow(0, begin, count), bias), begin))
        return false;
    }
    return true;
  }
  at::Tensor block(const HeadTiles& tiles, int64_t begin) const {
    return gradient_.narrow(1, begin, std::min(tiles.columns, head_.size() - begin)).contiguous();
  }
  bool input_agrees(const HeadTiles& tiles) const {
    at::Tensor sum;
    for (int64_t begin = 0; begin < head_.size(); begin += tiles.columns) {
      const at::Tensor classes = block(tiles, begin);
      add_products(sum, classes.t(), head_.weight.narrow(0, begin, classes.size(1)), tiles.class_part);
    }
    return have_same_bits(sum, of_input_->whole());
  }
  bool weight_agrees(const HeadTiles& tiles) const {
    const at::Tensor made = at::empty_like(head_.weight);
    for (int64_t begin = 0; begin < head_.size(); begin += tiles.columns) {
      const at::Tensor classes = block(tiles, begin);
      at::Tensor rows_of_weight = made.narrow(0, begin, classes.size(1));
      at::mm_out(rows_of_weight, classes.t(), head_.input);
    }
    return of_weight_->is_same(made);
  }

  /// Its own may be zeros, of which every sum has the same bits.
  static Head with_other_numbers(Head head) {
    head.input = numbers_like(head.input, 8, 1);
    head.weight = numbers_like(head.weight, 9, 0.1);
    head.bias = numbers_like(head.bias, 10, 1);
    return head;
  }

  const Head head_;
  const LargeProduct logits_;
  const at::Tensor gradient_;  ///< of the logits; undefined where its memory cannot be mapped
  std::optional<RowProduct> of_input_;
  std::optional<TokenSum> of_weight_;
};

/// Are the sums over tokens of blocks of classes those of all classes?
bool sums_by_blocks(const Head& head, int64_t columns) {
  const at::Tensor gradient = overlapping(head.tokens(), head.size(), 0, head.input.options());
  const at::Tensor whole = gradient.sum(0);
  for (int64_t begin = 0; begin < head.size(); begin += columns) {
    const int64_t count = std::min(columns, head.size() - begin);
    if (!have_same_bits(gradient.narrow(1, begin, count).contiguous().sum(0), whole.narrow(0, begin, count)))
      return false;
  }
  return true;
}

class Trial {
 public:
  Trial(const Head& head, const HeadNeeds& needs, bool whole)
      : head_(head), needs_(needs), classes_(whole ? head.size() : classes_of_sample(head, needs)) {}

  HeadChoice choose() {
    if (is_frozen(needs_) ? suits_frozen() : suits_trained()) return chosen();
    const bool is_known = !full_size_ || full_size_->is_known();
    return {{0, 0, is_known ? "no tiles that were tried have the bits of the whole" : kNoAddresses}, {}};
  }

 private:
  bool suits_frozen() {
    std::vector<RowTiles> candidates = row_candidates(head_.tokens());
    candidates.insert(candidates.begin(), {many_rows(), many_rows()});
    return std::ranges::any_of(candidates, [&](const RowTiles& rows) {
      return logits_agree_by_rows(Sample(head_, classes_), needs_, rows) && holds({.rows = rows});
    });
  }

  bool suits_trained() {
    // Sums of gradients in fewer digits are rounded after each tile.
    const bool adds_tiles = c10::elementSize(head_.input.scalar_type()) >= sizeof(float);
    // Blocks of classes for all gradients are the fastest, and hold more than tiles of rows where tokens are many.
    if (!head_.has_sums && adds_tiles && head_.tokens() <= head_.size()) {
      for (const int64_t added : added_at_a_time(head_.input.options())) {
        // Of several blocks a sample tells more; some kernels add in another order for few classes.
        for (const int64_t columns : {block(added, kRows, classes_ / 3), block(added, many_rows(), kMostInBlock)}) {
          for (const int64_t class_part : {columns, added}) {
            if (suits({.rows = {many_rows()}, .columns = columns, .class_part = class_part})) return true;
          }
        }
      }
    }
    for (const RowTiles& rows : row_candidates_of_sums(head_.tokens(), head_.input.options())) {
      if ((!needs_.weight || adds_tiles) && suits({.rows = rows})) return true;
    }
    if (head_.has_sums) return false;
    for (const RowTiles& rows : row_candidates(head_.tokens())) {
      if (suits({.rows = rows, .columns = block(kBlock, kRows, head_.size())})) return true;
    }
    return false;
  }

  /// In the forward pass, and where nothing is added over tokens.
  int64_t many_rows() const { return head_.tokens() >= 8 * kManyRows ? kManyRows : kRows; }

  /// A multiple of `of`, at most `most`: classes of which all tokens have no more logits than a tile of `rows` has.
  int64_t block(int64_t of, int64_t rows, int64_t most) const {
    most = std::min(most, rows * head_.size() / head_.tokens());
    return std::min(std::max(most / of, int64_t(1)) * of, head_.size());
  }

  bool suits(HeadTiles tiles) {
    if (needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), head_.size(), tiles.rows.rows, head_.input.options());
      if (!in_fours) return false;
      tiles.in_fours = std::move(*in_fours);
    }
    HeadTiles of_sample = tiles;
    if (!is_whole() && needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), classes_, tiles.rows.rows, head_.input.options());
      if (!in_fours) return false;
      of_sample.in_fours = std::move(*in_fours);
    }
    if (!suits_sample(of_sample)) return false;
    if (needs_.bias && tiles.has_columns() && !sums_by_blocks(head_, tiles.columns)) return false;
    return holds(std::move(tiles));
  }

  bool suits_sample(const HeadTiles& tiles) {
    if (!sample_) {
      sample_.emplace(head_, classes_);
      reference_ = sample_->run(needs_, {.rows = one_tile(head_.tokens())});
    }
    const Outcome outcome = sample_->run(needs_, tiles);
    const HeadGradients &made = outcome.gradients, &expected = reference_.gradients;
    if (!agree(outcome.values, reference_.values) || !agree(made.bias, expected.bias)) return false;
    // A part of the classes says little of products with all; blocks of classes that fail here are not tried with all.
    if (!is_whole() && tiles.class_part == 0) return true;
    return agree(made.weight, expected.weight) && agree(made.input, expected.input);
  }

  /// The sample has the same bits in these tiles; have all classes?
  bool holds(HeadTiles tiles) {
    if (!is_whole() || is_frozen(needs_)) {
      sample_.reset();  // gradients of their full size take its place
      reference_ = {};
      if (!full_size_) full_size_.emplace(head_, needs_);
      if (!full_size_->agrees(tiles)) return false;
    }
    tiles_ = std::move(tiles);
    return true;
  }

  bool is_whole() const { return classes_ == head_.size(); }

  HeadChoice chosen() const {
    std::string reason = "a trial with ";
    reason += is_whole() ? "all" : std::to_string(classes_) + " of the";
    reason += " classes gave the bits of the whole";
    if (tiles_.has_columns() && (tiles_.class_part != 0 || !needs_.input)) reason += "; gradients by blocks of classes";
    if (tiles_.has_columns() && tiles_.class_part == 0 && needs_.input) {
      reason += "; gradients of weights by blocks of classes, as sums over tiles of tokens differ, for a product more";
    }
    return {{tiles_.rows.rows, tiles_.columns, std::move(reason)}, tiles_};
  }

  const Head& head_;
  const HeadNeeds needs_;
  const int64_t classes_;  ///< of a sample
  std::optional<Sample> sample_;
  Outcome reference_;
  std::optional<FullSize> full_size_;
  HeadTiles tiles_;
};

Circumstances circumstances_of(const Head& head, const HeadNeeds& needs, bool whole_trial) {
  Circumstances now = circumstances();
  for (const at::Tensor& tensor : {head.input, head.weight, head.bias, head.class_weight}) append(now, tensor);
  for (const bool flag : {needs.input, needs.weight, needs.bias, head.has_sums, whole_trial})
    now.push_back(int64_t(flag));
  now.push_back(int64_t(head.loss_type));
  return now;
}

Choices<HeadChoice>& choices() {
  static auto* const of_process = new Choices<HeadChoice>;
  return *of_process;
}

}  // namespace

HeadChoice choose_tiles(const Head& head, const HeadNeeds& needs, bool whole_trial) {
  if (head.tokens() < kRows + kShortRest) {
    return {{head.tokens(), 0, "the tokens are one tile"}, {.rows = one_tile(head.tokens())}};
  }
  const Circumstances now = circumstances_of(head, needs, whole_trial);
  if (auto known = choices().find(now)) return *std::move(known);
  const Unobserved unobserved;
  HeadChoice choice = Trial(head, needs, whole_trial).choose();
  choices().add(now, choice);
  return choice;
}

}  // namespace remat::tiles
