#include "tiles/head_trial.h"

#include <algorithm>
#include <array>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "device/unobserved.h"
#include "tiles/rows.h"
#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Tokens in a tile, in the order in which they are tried. MKL adds products in blocks of 192; RowSum wants multiples
/// of 64.
constexpr std::array<int64_t, 7> kRows = {192, 384, 256, 128, 320, 448, 512};
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
    outcome.values = forward(head, tiles.rows);
    if (needs.any()) outcome.gradients = backward(head, gradients, needs, tiles);
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

bool agree(const Outcome& a, const Outcome& b) {
  return agree(a.values.picked, b.values.picked) && agree(a.values.sums, b.values.sums) &&
         agree(a.gradients.input, b.gradients.input) && agree(a.gradients.weight, b.gradients.weight) &&
         agree(a.gradients.bias, b.gradients.bias);
}

/// What trials of large heads may hold: the backward pass holds two tiles, and the gradients.
int64_t bytes_of_backward(const Head& head, const HeadNeeds& needs) {
  const int64_t tile = kRows.front() * head.size() * int64_t(c10::elementSize(head.loss_type));
  return 2 * tile + (needs.input ? int64_t(head.input.nbytes()) : 0) +
         (needs.weight ? int64_t(head.weight.nbytes()) : 0);
}

/// How many classes a sample has.
int64_t classes_of_sample(const Head& head, const HeadNeeds& needs) {
  const auto number = int64_t(c10::elementSize(head.loss_type));
  const int64_t fixed = head.tokens() * head.width() * number * (needs.input ? 3 : 1);
  const int64_t of_class = number * (3 * head.tokens() + head.width() * (needs.weight ? 3 : 1));
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

/// Some tokens with all classes: have their logits the bits that they have with the classes of the sample alone? Else
/// the sample says nothing of the whole.
bool speaks_for_all_classes(const Head& head, const Sample& sample) {
  const at::Tensor input = sample.head.input.narrow(0, 0, std::min(kRows.front(), head.tokens()));
  const at::Tensor logits = at::linear(input, head.weight, head.bias);
  return have_same_bits(logits.narrow(1, 0, sample.head.size()).contiguous(),
                        logits_of_block(head, input, 0, sample.head.size()));
}

/// Some tokens with all classes, in these tiles: have the gradients of the weight the bits that they have with the
/// classes of the sample alone, or by blocks, as have logits? And is the input's gradient, a sum over all classes, the
/// same in tiles?
bool holds_for_all_classes(const Head& head, const Sample& sample, const HeadNeeds& needs, const HeadTiles& tiles) {
  const int64_t rows = std::min(tiles.rows, head.tokens());
  const at::Tensor input = sample.head.input.narrow(0, 0, rows);
  at::Tensor gradient, of_weight;
  if (needs.weight) {
    gradient = at::empty({rows, head.size()}, input.options());
    fill(gradient, 7, kDeviation);
    of_weight = at::mm(gradient.t(), input);
  }
  const auto has_its_weight = [&](int64_t begin, int64_t count) {
    return !needs.weight || have_same_bits(of_weight.narrow(0, begin, count),
                                           at::mm(gradient.narrow(1, begin, count).contiguous().t(), input));
  };
  if (tiles.has_columns()) {
    const at::Tensor logits = at::linear(input, head.weight, head.bias);
    for (int64_t begin = 0; begin < head.size(); begin += tiles.columns) {
      const int64_t count = std::min(tiles.columns, head.size() - begin);
      if (!have_same_bits(logits.narrow(1, begin, count).contiguous(), logits_of_block(head, input, begin, count)) ||
          !has_its_weight(begin, count)) {
        return false;
      }
    }
  } else if (!has_its_weight(0, sample.head.size())) {
    return false;
  }
  gradient.reset();
  of_weight.reset();
  if (!needs.input) return true;
  const int64_t most = bytes_of_backward(head, needs) / (head.size() * int64_t(input.element_size()));
  gradient = at::empty({std::min({head.tokens(), most, 4 * rows}), head.size()}, input.options());
  fill(gradient, 8, kDeviation);
  const at::Tensor whole = at::mm(gradient, head.weight);
  for (int64_t begin = 0, count = 0; begin < gradient.size(0); begin += count) {
    count = rows_of_tile(begin, rows, gradient.size(0));
    if (!have_same_bits(at::mm(gradient.narrow(0, begin, count), head.weight), whole.narrow(0, begin, count))) {
      return false;
    }
  }
  return true;
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
      : head_(head), needs_(needs), sample_(head, whole ? head.size() : classes_of_sample(head, needs)) {}

  HeadChoice choose() {
    if (!is_whole() && !speaks_for_all_classes(head_, sample_)) {
      return {{0, 0, "products with some of the classes have other bits than with all, so only whole_trial can tell"},
              {}};
    }
    reference_ = sample_.run(needs_, {head_.tokens(), 0, head_.tokens(), {}});
    // Sums of gradients in fewer digits are rounded after each tile.
    const bool adds_tiles = !needs_.weight || c10::elementSize(head_.input.scalar_type()) >= sizeof(float);
    for (const int64_t rows : kRows) {
      if (!adds_tiles || rows + kShortRest > head_.tokens()) continue;
      if (suits({rows, 0, rows, {}})) return chosen();
      if (head_.tokens() % rows < kShortRest && suits({rows, 0, rows + kShortRest, {}})) return chosen();
    }
    if (!head_.has_sums && (needs_.weight || needs_.bias) && suits({kRows.front(), columns(), 0, {}})) return chosen();
    return {{0, 0, "no tiles that were tried have the bits of the whole"}, {}};
  }

 private:
  /// So that a block has about as many logits as a tile of rows, and a sample several.
  int64_t columns() const {
    const int64_t most = std::min(kRows.front() * head_.size() / head_.tokens(), sample_.head.size() / 3);
    return std::max(most / kBlock, int64_t(1)) * kBlock;
  }

  bool suits(HeadTiles tiles) {
    if (needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), head_.size(), tiles.rows, head_.input.options());
      if (!in_fours) return false;
      tiles.in_fours = std::move(*in_fours);
    }
    HeadTiles of_sample = tiles;
    if (!is_whole() && needs_.bias && !tiles.has_columns()) {
      auto in_fours = columns_in_fours(head_.tokens(), sample_.head.size(), tiles.rows, head_.input.options());
      if (!in_fours) return false;
      of_sample.in_fours = std::move(*in_fours);
    }
    if (!agree(sample_.run(needs_, of_sample), reference_)) return false;
    if (!is_whole() && !holds_for_all_classes(head_, sample_, needs_, tiles)) return false;
    if (needs_.bias && tiles.has_columns() && !sums_by_blocks(head_, tiles.columns)) return false;
    tiles_ = std::move(tiles);
    return true;
  }

  bool is_whole() const { return sample_.head.size() == head_.size(); }

  HeadChoice chosen() const {
    std::string reason = "a trial with ";
    reason += is_whole() ? "all" : std::to_string(sample_.head.size()) + " of the";
    reason += " classes gave the bits of the whole";
    if (tiles_.has_columns())
      reason += "; gradients of weights by blocks of classes, as sums over tiles of tokens differ";
    return {{tiles_.rows, tiles_.columns, std::move(reason)}, tiles_};
  }

  const Head& head_;
  const HeadNeeds needs_;
  const Sample sample_;
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
    return {{head.tokens(), 0, "the tokens are one tile"}, {head.tokens(), 0, head.tokens(), {}}};
  }
  const Circumstances now = circumstances_of(head, needs, whole_trial);
  if (auto known = choices().find(now)) return *std::move(known);
  const Unobserved unobserved;
  HeadChoice choice = Trial(head, needs, whole_trial).choose();
  choices().add(now, choice);
  return choice;
}

}  // namespace remat::tiles
