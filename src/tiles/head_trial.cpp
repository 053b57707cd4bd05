#include "tiles/head_trial.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "device/unobserved.h"
#include "tiles/rows.h"
#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// How many products MKL adds at a time.
constexpr int64_t kAdded = 192;
/// Tokens in a tile, in the order in which they are tried. RowSum wants multiples of 64.
constexpr std::array<int64_t, 7> kRows = {kAdded, 384, 256, 128, 320, 448, 512};
static_assert(kRows.front() + kShortRest == kFewestTiledTokens);
/// Tokens in a tile where nothing is added over them and a tile is an eighth of the logits at most: with as few as
/// kRows has, products take up to a third longer.
constexpr int64_t kManyRows = 2 * kAdded;
/// A trial with some of the classes takes this many at most, and at least.
constexpr int64_t kMostClasses = 2048, kFewestClasses = 256;
/// Bytes that every trial may hold.
constexpr int64_t kSmall = int64_t(32) << 20;
/// Blocks of classes are multiples of it.
constexpr int64_t kBlock = 64;
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

bool agree(const Outcome& a, const Outcome& b) {
  return agree(a.values, b.values) && agree(a.gradients.input, b.gradients.input) &&
         agree(a.gradients.weight, b.gradients.weight) && agree(a.gradients.bias, b.gradients.bias);
}

/// What trials of large heads may hold: as much as the backward pass does, a tile and the gradients.
int64_t bytes_of_backward(const Head& head, const HeadNeeds& needs) {
  const int64_t tile = kRows.front() * head.size() * int64_t(c10::elementSize(head.loss_type));
  return tile + (needs.input ? int64_t(head.input.nbytes()) : 0) + (needs.weight ? int64_t(head.weight.nbytes()) : 0);
}

/// Are weights and biases as they are? Then nothing is added over tokens.
bool is_frozen(const HeadNeeds& needs) { return !needs.weight && !needs.bias; }

/// How many classes a sample has.
int64_t classes_of_sample(const Head& head, const HeadNeeds& needs) {
  const auto number = int64_t(c10::elementSize(head.loss_type));
  // Where nothing is added over tokens one thing after the other is compared: see rows_agree().
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

at::Tensor logits_of_block(const Head& head, const at::Tensor& input, int64_t begin, int64_t count) {
  return at::linear(input, head.weight.narrow(0, begin, count),
                    head.bias.defined() ? head.bias.narrow(0, begin, count) : head.bias);
}

/// Of a head that is frozen: has each row of logits, of their gradients, and of the input's the same bits in tiles of
/// `rows`? An input and its gradient are not there together, which tiles would not hold either. Uses the sample up.
bool rows_agree(Sample sample, const HeadNeeds& needs, int64_t rows) {
  const Head& head = sample.head;
  const auto in_tiles = [rows](const at::Tensor& whole, const auto& make_tile) {
    for (int64_t begin = 0, count = 0; begin < whole.size(0); begin += count) {
      count = rows_of_tile(begin, rows, whole.size(0));
      if (!have_same_bits(make_tile(begin, count), whole.narrow(0, begin, count))) return false;
    }
    return true;
  };
  const HeadTiles all{.rows = head.tokens()}, tiles{.rows = rows};
  if (!agree(forward(head, all).values, forward(head, tiles).values)) return false;
  at::Tensor log_probabilities = log_probabilities_of(head, 0, head.tokens());
  if (!in_tiles(log_probabilities,
                [&](int64_t begin, int64_t count) { return log_probabilities_of(head, begin, count); })) {
    return false;
  }
  if (!needs.input) return true;
  at::Tensor gradient = gradient_of_logits(head, sample.gradients, 0, log_probabilities);
  if (!in_tiles(gradient, [&](int64_t begin, int64_t count) {
        return gradient_of_logits(head, sample.gradients, begin, log_probabilities.narrow(0, begin, count));
      })) {
    return false;
  }
  log_probabilities.reset();
  sample.head.input.reset();
  return in_tiles(at::mm(gradient, head.weight),
                  [&](int64_t begin, int64_t count) { return at::mm(gradient.narrow(0, begin, count), head.weight); });
}

/// `few`: some tokens, with all classes. Have their logits the bits that they have with the first `classes` alone? Else
/// a sample of so many says nothing of the whole.
bool speaks_for_all_classes(const Head& head, const at::Tensor& few, int64_t classes) {
  const at::Tensor input = few.narrow(0, 0, std::min(kRows.front(), head.tokens()));
  return have_same_bits(at::linear(input, head.weight, head.bias).narrow(1, 0, classes).contiguous(),
                        logits_of_block(head, input, 0, classes));
}

/// Gradients of the logits of some tokens, as many as a trial may hold: is what they give the input, a sum over all
/// classes, the same in these tiles?
bool sums_over_classes(const Head& head, const HeadNeeds& needs, const HeadTiles& tiles) {
  const int64_t rows = std::min(tiles.rows, head.tokens());
  const int64_t most = bytes_of_backward(head, needs) / (head.size() * int64_t(head.input.element_size()));
  const int64_t least = tiles.class_part != 0 ? 1 : 2 * rows;  // one tile alone is the whole
  const int64_t count_of_rows = std::min({head.tokens(), std::max(most, least), 4 * rows});
  at::Tensor gradient = at::empty({count_of_rows, head.size()}, head.input.options());
  fill(gradient, 8, kDeviation);
  const at::Tensor whole = at::mm(gradient, head.weight);
  if (tiles.class_part != 0) {
    at::Tensor sum;
    for (int64_t begin = 0; begin < head.size(); begin += tiles.columns) {
      const int64_t count = std::min(tiles.columns, head.size() - begin);
      add_products(sum, gradient.narrow(1, begin, count).contiguous().t(), head.weight.narrow(0, begin, count),
                   tiles.class_part);
    }
    return have_same_bits(sum, whole);
  }
  for (int64_t begin = 0, count = 0; begin < gradient.size(0); begin += count) {
    count = rows_of_tile(begin, rows, gradient.size(0));
    if (!have_same_bits(at::mm(gradient.narrow(0, begin, count), head.weight), whole.narrow(0, begin, count))) {
      return false;
    }
  }
  return true;
}

/// `few` with all classes, in these tiles: have the gradients of the weight the bits that they have with the first
/// `classes` alone, or by blocks, as have logits? And is the input's gradient the same in tiles?
bool holds_for_all_classes(const Head& head, const at::Tensor& few, int64_t classes, const HeadNeeds& needs,
                           const HeadTiles& tiles) {
  const int64_t rows = std::min(tiles.rows, head.tokens());
  const at::Tensor input = few.narrow(0, 0, rows);
  const auto in_blocks = [&](const auto& agrees) {
    for (int64_t begin = 0; begin < head.size(); begin += tiles.columns) {
      if (!agrees(begin, std::min(tiles.columns, head.size() - begin))) return false;
    }
    return true;
  };
  if (tiles.has_columns()) {
    const at::Tensor logits = at::linear(input, head.weight, head.bias);
    const bool agree = in_blocks([&](int64_t begin, int64_t count) {
      return have_same_bits(logits.narrow(1, begin, count).contiguous(), logits_of_block(head, input, begin, count));
    });
    if (!agree) return false;
  }
  if (needs.weight) {  // the logits are not there any more
    at::Tensor gradient = at::empty({rows, head.size()}, input.options());
    fill(gradient, 7, kDeviation);
    const at::Tensor of_weight = at::mm(gradient.t(), input);
    const auto agrees = [&](int64_t begin, int64_t count) {
      return have_same_bits(of_weight.narrow(0, begin, count),
                            at::mm(gradient.narrow(1, begin, count).contiguous().t(), input));
    };
    if (!(tiles.has_columns() ? in_blocks(agrees) : agrees(0, classes))) return false;
  }
  return !needs.input || sums_over_classes(head, needs, tiles);
}

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
      : head_(head), needs_(needs), classes_(whole ? head.size() : classes_of_sample(head, needs)) {
    if (!is_whole()) few_ = sample_like(head.input.narrow(0, 0, std::min(kRows.back(), head.tokens())), 1);
  }

  HeadChoice choose() {
    if (!is_whole() && !speaks_for_all_classes(head_, few_, classes_)) {
      return {{0, 0, "products with some of the classes have other bits than with all, so only whole_trial can tell"},
              {}};
    }
    if (is_frozen(needs_) ? suits_frozen() : suits_trained()) return chosen();
    return {{0, 0, "no tiles that were tried have the bits of the whole"}, {}};
  }

 private:
  bool suits_frozen() {
    std::vector<int64_t> candidates(kRows.begin(), kRows.end());
    candidates.insert(candidates.begin(), many_rows());
    return std::ranges::any_of(candidates, [&](int64_t rows) {
      const HeadTiles tiles{.rows = rows, .part = rows};
      if (rows + kShortRest > head_.tokens() || !rows_agree(Sample(head_, classes_), needs_, rows)) return false;
      return holds(tiles);
    });
  }

  bool suits_trained() {
    sample_.emplace(head_, classes_);
    reference_ = sample_->run(needs_, {.rows = head_.tokens(), .part = head_.tokens()});
    // Sums of gradients in fewer digits are rounded after each tile.
    const bool adds_tiles = c10::elementSize(head_.input.scalar_type()) >= sizeof(float);
    // Blocks of classes for all gradients are the fastest, and hold more than tiles of rows where tokens are many.
    if (!head_.has_sums && adds_tiles && head_.tokens() <= head_.size()) {
      const int64_t block = columns(kAdded);
      for (const int64_t class_part : {block, kAdded}) {
        if (suits({.rows = many_rows(), .columns = block, .class_part = class_part})) return true;
      }
    }
    for (const int64_t rows : kRows) {
      if ((needs_.weight && !adds_tiles) || rows + kShortRest > head_.tokens()) continue;
      if (suits({.rows = rows, .part = rows})) return true;
      if (head_.tokens() % rows < kShortRest && suits({.rows = rows, .part = rows + kShortRest})) return true;
    }
    return !head_.has_sums && suits({.rows = kRows.front(), .columns = columns(kBlock)});
  }

  /// In the forward pass, and where nothing is added over tokens.
  int64_t many_rows() const { return head_.tokens() >= 8 * kManyRows ? kManyRows : kRows.front(); }

  /// A multiple of `of`, so that a block has about as many logits as a tile of rows, and a sample several blocks.
  int64_t columns(int64_t of) const {
    const int64_t most = std::min(kRows.front() * head_.size() / head_.tokens(), classes_ / 3);
    return std::min(std::max(most / of, int64_t(1)) * of, head_.size());
  }

  bool suits(HeadTiles tiles) {
    if (needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), head_.size(), tiles.rows, head_.input.options());
      if (!in_fours) return false;
      tiles.in_fours = std::move(*in_fours);
    }
    HeadTiles of_sample = tiles;
    if (!is_whole() && needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), classes_, tiles.rows, head_.input.options());
      if (!in_fours) return false;
      of_sample.in_fours = std::move(*in_fours);
    }
    if (!agree(sample_->run(needs_, of_sample), reference_)) return false;
    if (needs_.bias && tiles.has_columns() && !sums_by_blocks(head_, tiles.columns)) return false;
    return holds(std::move(tiles));
  }

  /// The sample has the same bits in these tiles; have all classes?
  bool holds(HeadTiles tiles) {
    if (!is_whole() && !holds_for_all_classes(head_, few_, classes_, needs_, tiles)) return false;
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
    return {{tiles_.rows, tiles_.columns, std::move(reason)}, tiles_};
  }

  const Head& head_;
  const HeadNeeds needs_;
  const int64_t classes_;  ///< of a sample
  at::Tensor few_;         ///< tokens, to try all classes with; undefined where the sample has all
  std::optional<Sample> sample_;
  Outcome reference_;
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
  if (head.tokens() < kRows.front() + kShortRest) {
    return {{head.tokens(), 0, "the tokens are one tile"}, {.rows = head.tokens(), .part = head.tokens()}};
  }
  const Circumstances now = circumstances_of(head, needs, whole_trial);
  if (auto known = choices().find(now)) return *std::move(known);
  const Unobserved unobserved;
  HeadChoice choice = Trial(head, needs, whole_trial).choose();
  choices().add(now, choice);
  return choice;
}

}  // namespace remat::tiles
