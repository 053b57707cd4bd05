#include "tiles/mlp_trial.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "device/unobserved.h"
#include "tiles/full_size.h"
#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Tokens of the smallest tile that is tried first.
constexpr int64_t kRows = 192;
/// Numbers that kernels of activations take at a time, or fewer; the rest is computed one by one, and may have other
/// bits.
constexpr int64_t kVector = 64;
constexpr int64_t kMostHidden = 2048, kFewestHidden = 256;
/// Bytes that every trial may hold.
constexpr int64_t kSmall = int64_t(32) << 20;
constexpr double kDeviation = 1e-3;

/// Does each thread get whole vectors of a tensor with so many numbers?
bool has_whole_vectors(int64_t numbers) {
  const int64_t threads = at::get_num_threads();
  for (const int64_t parts : {threads, std::min(threads, at::divup(numbers, at::internal::GRAIN_SIZE))}) {
    if (at::divup(numbers, parts) % kVector != 0) return false;
  }
  return numbers % kVector == 0;
}

bool has_whole_vectors(const Mlp& mlp, const RowTiles& tiles) {
  const int64_t tokens = mlp.tokens();
  int64_t last = tokens % tiles.rows;
  if (last < tiles.least) last += tiles.rows;
  return has_whole_vectors(tokens * mlp.hidden()) && has_whole_vectors(tiles.rows * mlp.hidden()) &&
         has_whole_vectors(last * mlp.hidden());
}

struct Outcome {
  at::Tensor result;
  MlpGradients gradients;
};

bool agree(const at::Tensor& a, const at::Tensor& b) { return !a.defined() || have_same_bits(a, b); }

bool agree(const Outcome& a, const Outcome& b) {
  for (size_t part = 0; part < kMlpParts; ++part) {
    if (!agree(a.gradients.parts[part], b.gradients.parts[part])) return false;
  }
  return agree(a.gradients.input_of_gate, b.gradients.input_of_gate) && agree(a.result, b.result);
}

/// Some tokens and some hidden units, with numbers of its own.
struct Sample {
  Mlp mlp;
  at::Tensor gradient;

  Sample(const Mlp& of, int64_t tokens, int64_t hidden) : mlp(of) {
    for (size_t part = 0; part < kMlpParts; ++part) {
      at::Tensor& tensor = mlp.parts[part];
      if (!tensor.defined()) continue;
      if (part == kInput) tensor = tensor.narrow(0, 0, tokens);
      if (part == kUp || part == kUpBias || part == kGate || part == kGateBias) tensor = tensor.narrow(0, 0, hidden);
      if (part == kDown) tensor = tensor.narrow(1, 0, hidden);
      // A part of the columns of `down` is laid out as a layer of its own is.
      if (part == kDown && hidden < of.hidden()) tensor = at::empty({of.results(), hidden}, tensor.options());
      tensor = sample_like(tensor, part, part == kInput ? 1 : 0.1);
    }
    gradient = at::empty({tokens, of.results()}, of[kInput].options());
    fill(gradient, kMlpParts, kDeviation);
  }

  Outcome run(const MlpParts<bool>& needs, const MlpTiles& tiles) const {
    return {forward(mlp, tiles.rows), backward(mlp, gradient, needs, tiles)};
  }

  /// Have the hidden units and their gradients the same bits in tiles?
  bool has_units_in(const RowTiles& tiles) const {
    const HiddenLayer whole = hidden_layer(mlp, mlp[kInput], gradient);
    for (int64_t begin = 0, count = 0; begin < mlp.tokens(); begin += count) {
      count = tiles.count(begin, mlp.tokens());
      const auto rows = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, begin, count) : all; };
      const HiddenLayer tile = hidden_layer(mlp, rows(mlp[kInput]), rows(gradient));
      if (!agree(tile.units, rows(whole.units)) || !agree(tile.of_up, rows(whole.of_up)) ||
          !agree(tile.of_gate, rows(whole.of_gate))) {
        return false;
      }
    }
    return true;
  }
};

/// What is made of all hidden units, and of the gradients of all.
class FullSize {
 public:
  FullSize(const Mlp& of, const MlpParts<bool>& needs)
      : hidden_(repeating(of.tokens(), of.hidden(), 1, kDeviation, of[kInput].options())) {
    if (!hidden_.defined()) return;
    Mlp mlp = of;  // with other numbers: its own may be zeros, of which every sum has the same bits
    for (size_t part = 0; part < kMlpParts; ++part) mlp.parts[part] = numbers_like(of.parts[part], 10 + part, 0.1);
    for (const auto& [weight, bias] : {std::pair(kUp, kUpBias), std::pair(kGate, kGateBias)}) {
      if (!mlp[weight].defined()) continue;
      add_units(mlp, [input = mlp[kInput], up = mlp[weight], added = mlp[bias]](at::Tensor& out, int64_t begin,
                                                                                int64_t count) {
        at::linear_out(out, input.narrow(0, begin, count), up, added);
      });
    }
    at::Tensor results = at::empty({mlp.tokens(), mlp.results()}, mlp[kInput].options());
    fill(results, 3, kDeviation);
    add_units(mlp, [down = mlp[kDown], results](at::Tensor& out, int64_t begin, int64_t count) {
      at::mm_out(out, results.narrow(0, begin, count), down);
    });
    products_.emplace_back(hidden_, [down = mlp[kDown], bias = mlp[kDownBias]](const at::Tensor& rows) {
      return at::linear(rows, down, bias);
    });
    for (const MlpPart part : {kUp, kGate}) {
      if (!needs[kInput] || !mlp[part].defined()) continue;
      products_.emplace_back(hidden_, [weight = mlp[part]](const at::Tensor& rows) { return at::mm(rows, weight); });
    }
    if (needs[kUp] || needs[kGate]) sums_.emplace_back(hidden_, mlp[kInput]);
    if (needs[kDown]) sums_.emplace_back(hidden_, results, /*large_is_left=*/false);
  }

  bool is_known() const {  ///< memory could be mapped
    return hidden_.defined() && std::ranges::all_of(units_, &LargeProduct::is_known);
  }
  /// Have they the same bits in these tiles?
  bool agrees(const RowTiles& tiles) const {
    const auto is_same = [&](const auto& product) { return product.is_same_in(tiles); };
    return is_known() && std::ranges::all_of(units_, is_same) && std::ranges::all_of(products_, is_same) &&
           std::ranges::all_of(sums_, is_same);
  }

 private:
  void add_units(const Mlp& mlp, LargeProduct::Write write) {
    units_.emplace_back(mlp.tokens(), mlp.hidden(), mlp[kInput].options(), std::move(write));
  }

  const at::Tensor hidden_;  ///< undefined where its memory cannot be mapped
  std::vector<LargeProduct> units_;
  std::vector<RowProduct> products_;
  std::vector<TokenSum> sums_;
};

class Trial {
 public:
  Trial(const Mlp& mlp, const MlpParts<bool>& needs, bool whole) : mlp_(mlp), needs_(needs), is_whole_(whole) {}

  MlpChoice choose() {
    const int64_t hidden = hidden_of_sample();
    if (hidden == 0) return {{0, 0, "a trial would take more memory than the backward pass"}, {}};
    const bool has_sums = needs_[kUp] || needs_[kGate] || needs_[kDown];
    const auto candidates =
        has_sums ? row_candidates_of_sums(mlp_.tokens(), mlp_[kInput].options()) : row_candidates(mlp_.tokens());
    for (const RowTiles& rows : candidates) {
      if (!has_whole_vectors(mlp_, rows)) continue;
      const auto tiles = tiles_of(rows, mlp_.hidden()), of_sample = tiles_of(rows, hidden);
      if (!tiles || !of_sample || !suits_sample(*of_sample, hidden)) continue;
      if (hidden < mlp_.hidden() && !products_agree(rows)) continue;
      std::string reason = "a trial with ";
      reason += hidden == mlp_.hidden() ? "all" : std::to_string(hidden) + " of the";
      return {{rows.rows, 0, reason + " hidden units gave the bits of the whole"}, *tiles};
    }
    const bool is_known = !full_size_ || full_size_->is_known();
    return {{0, 0, is_known ? "no tiles that were tried have the bits of the whole" : kNoAddresses}, {}};
  }

 private:
  int64_t number_size() const { return int64_t(mlp_[kInput].element_size()); }
  /// Tensors of the hidden layer that a tile has at most.
  int64_t tensors_of_tile() const { return mlp_.is_gated() ? 8 : 4; }

  int64_t bytes_of_gradients() const {
    int64_t bytes = 0;
    for (size_t part = 0; part < kMlpParts; ++part) {
      if (needs_[part]) bytes += int64_t(mlp_.parts[part].nbytes());
    }
    return bytes;
  }
  int64_t bytes_of_backward() const {
    return bytes_of_gradients() + kRows * mlp_.hidden() * tensors_of_tile() * number_size();
  }

  /// How many hidden units the sample with all tokens has; 0: it would be too large.
  int64_t hidden_of_sample() const {
    if (is_whole_ || mlp_.tokens() * mlp_.hidden() * tensors_of_tile() * number_size() <= kSmall) return mlp_.hidden();
    const int64_t fixed = mlp_.tokens() * (3 * mlp_.width() + 3 * mlp_.results());
    const int64_t of_hidden = mlp_.tokens() * tensors_of_tile() + 6 * (mlp_.width() + mlp_.results());
    const int64_t fit = (bytes_of_backward() / number_size() - fixed) / of_hidden;
    const int64_t most = std::clamp(fit, kFewestHidden, kMostHidden);
    if (mlp_.hidden() <= most) return mlp_.hidden();
    const int64_t step = kVector * at::get_num_threads();
    return mlp_.hidden() % kVector != 0 ? 0 : most / step * step;
  }

  std::optional<MlpTiles> tiles_of(const RowTiles& rows, int64_t hidden) const {
    if (!needs_[kUpBias] && !needs_[kGateBias]) return MlpTiles{rows};
    auto in_fours = columns_in_fours(mlp_.tokens(), hidden, rows.rows, mlp_[kInput].options());
    if (!in_fours) return std::nullopt;
    return MlpTiles{rows, *std::move(in_fours)};
  }

  /// Of a sample with some of the hidden units these alone tell: products with them are of another size.
  bool suits_sample(const MlpTiles& tiles, int64_t hidden) {
    if (!sample_) {
      sample_.emplace(mlp_, mlp_.tokens(), hidden);
      if (hidden == mlp_.hidden()) reference_ = sample_->run(needs_, {one_tile(mlp_.tokens())});
    }
    return hidden == mlp_.hidden() ? agree(sample_->run(needs_, tiles), reference_) : sample_->has_units_in(tiles.rows);
  }

  /// The sample has the same bits in these tiles; have products of the hidden layer, of their full size?
  bool products_agree(const RowTiles& rows) {
    sample_.reset();  // these take its place
    reference_ = {};
    if (!full_size_) full_size_.emplace(mlp_, needs_);
    return full_size_->agrees(rows);
  }

  const Mlp& mlp_;
  const MlpParts<bool> needs_;
  const bool is_whole_;
  std::optional<Sample> sample_;
  Outcome reference_;
  std::optional<FullSize> full_size_;
};

Circumstances circumstances_of(const Mlp& mlp, const MlpParts<bool>& needs, bool whole_trial) {
  Circumstances now = circumstances();
  for (const at::Tensor& part : mlp.parts) append(now, part);
  for (const bool need : needs) now.push_back(int64_t(need));
  now.push_back(int64_t(whole_trial));
  now.push_back(int64_t(mlp.activation));
  return now;
}

Choices<MlpChoice>& choices() {
  static auto* const of_process = new Choices<MlpChoice>;
  return *of_process;
}

}  // namespace

MlpChoice choose_tiles(const Mlp& mlp, const MlpParts<bool>& needs, bool whole_trial) {
  if (mlp.tokens() < kRows + kShortRest) {
    return {{mlp.tokens(), 0, "the tokens are one tile"}, {one_tile(mlp.tokens())}};
  }
  const Circumstances now = circumstances_of(mlp, needs, whole_trial);
  if (auto known = choices().find(now)) return *std::move(known);
  const Unobserved unobserved;
  MlpChoice choice = Trial(mlp, needs, whole_trial).choose();
  choices().add(now, choice);
  return choice;
}

}  // namespace remat::tiles
