#include "tiles/mlp_trial.h"

#include <algorithm>
#include <array>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "device/unobserved.h"
#include "tiles/rows.h"
#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Tokens in a tile, in the order in which they are tried: see head_trial.cpp.
constexpr std::array<int64_t, 7> kRows = {192, 384, 256, 128, 320, 448, 512};
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

bool has_whole_vectors(const Mlp& mlp, int64_t rows) {
  const int64_t rest = mlp.tokens() % rows, last = rest < kShortRest ? rows + rest : rest;
  return has_whole_vectors(mlp.tokens() * mlp.hidden()) && has_whole_vectors(rows * mlp.hidden()) &&
         has_whole_vectors(last * mlp.hidden());
}

struct Outcome {
  at::Tensor result;
  MlpGradients gradients;
};

bool agree(const Outcome& a, const Outcome& b) {
  for (size_t part = 0; part < kMlpParts; ++part) {
    const at::Tensor &mine = a.gradients.parts[part], &other = b.gradients.parts[part];
    if (mine.defined() && !have_same_bits(mine, other)) return false;
  }
  const at::Tensor& of_gate = a.gradients.input_of_gate;
  if (of_gate.defined() && !have_same_bits(of_gate, b.gradients.input_of_gate)) return false;
  return have_same_bits(a.result, b.result);
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
};

class Trial {
 public:
  Trial(const Mlp& mlp, const MlpParts<bool>& needs, bool whole) : mlp_(mlp), needs_(needs), is_whole_(whole) {}

  MlpChoice choose() {
    const int64_t hidden = hidden_of_sample();
    if (hidden == 0) return {{0, 0, "a trial would take more memory than the backward pass"}, {}};
    const Sample sample(mlp_, mlp_.tokens(), hidden);
    const Outcome whole = sample.run(needs_, {mlp_.tokens(), mlp_.tokens(), {}});
    for (const int64_t rows : kRows) {
      if (rows + kShortRest > mlp_.tokens() || !has_whole_vectors(mlp_, rows)) continue;
      const bool has_short_rest = mlp_.tokens() % rows < kShortRest;
      for (const int64_t part : {rows, rows + kShortRest}) {
        if (part != rows && !has_short_rest) continue;
        const auto tiles = tiles_of(rows, part, mlp_.hidden()), of_sample = tiles_of(rows, part, hidden);
        if (!tiles || !of_sample || !agree(sample.run(needs_, *of_sample), whole)) continue;
        if (hidden < mlp_.hidden() && !(holds_for_all_hidden(*tiles) && has_its_weights(rows, hidden))) continue;
        std::string reason = "a trial with ";
        reason += hidden == mlp_.hidden() ? "all" : std::to_string(hidden) + " of the";
        return {{rows, 0, reason + " hidden units gave the bits of the whole"}, *tiles};
      }
    }
    return {{0, 0, "no tiles that were tried have the bits of the whole"}, {}};
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
    return bytes_of_gradients() + kRows.front() * mlp_.hidden() * tensors_of_tile() * number_size();
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

  std::optional<MlpTiles> tiles_of(int64_t rows, int64_t part, int64_t hidden) const {
    if (!needs_[kUpBias] && !needs_[kGateBias]) return MlpTiles{rows, part, {}};
    auto in_fours = columns_in_fours(mlp_.tokens(), hidden, rows, mlp_[kInput].options());
    if (!in_fours) return std::nullopt;
    return MlpTiles{rows, part, *std::move(in_fours)};
  }

  /// Some tokens with all hidden units: are sums over hidden units the same in tiles?
  bool holds_for_all_hidden(const MlpTiles& tiles) const {
    const int64_t fit = bytes_of_backward() / (mlp_.hidden() * tensors_of_tile() * number_size());
    const int64_t tokens = std::min(mlp_.tokens(), std::clamp(fit, tiles.rows + kVector, 4 * tiles.rows));
    MlpParts<bool> needs = {};
    needs[kInput] = needs_[kInput];
    const Sample sample(mlp_, tokens, mlp_.hidden());
    return agree(sample.run(needs, {tokens, tokens, {}}), sample.run(needs, {tiles.rows, tiles.part, {}}));
  }

  /// Some tokens with all hidden units: have the gradients of weights the bits that they have with `hidden` of them?
  bool has_its_weights(int64_t rows, int64_t hidden) const {
    const auto sample = [&](int64_t columns, uint64_t seed) {
      at::Tensor numbers = at::empty({rows, columns}, mlp_[kInput].options());
      fill(numbers, seed, kDeviation);
      return numbers;
    };
    const at::Tensor units = sample(mlp_.hidden(), 1), some = units.narrow(1, 0, hidden).contiguous();
    if (needs_[kUp] || needs_[kGate]) {
      const at::Tensor input = sample(mlp_.width(), 2);
      if (!have_same_bits(at::mm(units.t(), input).narrow(0, 0, hidden), at::mm(some.t(), input))) return false;
    }
    if (!needs_[kDown]) return true;
    const at::Tensor results = sample(mlp_.results(), 3);
    return have_same_bits(at::mm(results.t(), units).narrow(1, 0, hidden).contiguous(), at::mm(results.t(), some));
  }

  const Mlp& mlp_;
  const MlpParts<bool> needs_;
  const bool is_whole_;
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
  if (mlp.tokens() < kRows.front() + kShortRest) {
    return {{mlp.tokens(), 0, "the tokens are one tile"}, {mlp.tokens(), mlp.tokens(), {}}};
  }
  const Circumstances now = circumstances_of(mlp, needs, whole_trial);
  if (auto known = choices().find(now)) return *std::move(known);
  const Unobserved unobserved;
  MlpChoice choice = Trial(mlp, needs, whole_trial).choose();
  choices().add(now, choice);
  return choice;
}

}  // namespace remat::tiles
