#include "cli/masked_text_data.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include <remat/support/mix.h>

namespace remat::cli {
namespace {

constexpr int64_t kAround = 2;  // the first and the last token of an example are not the text's

/// 15 % of `window`, rounded, and at least one.
int64_t predictions(int64_t window) { return std::max<int64_t>(1, (15 * window + 50) / 100); }

/// The first `count` places of a window of `size` in an order that `random` decides.
std::vector<int64_t> choose(int64_t count, int64_t size, support::SplitMix& random) {
  std::vector<int64_t> places(static_cast<size_t>(size));
  std::iota(places.begin(), places.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    std::swap(places[static_cast<size_t>(i)],
              places[static_cast<size_t>(i) + random.below(static_cast<uint64_t>(size - i))]);
  }
  places.resize(static_cast<size_t>(count));
  return places;
}

}  // namespace

MaskedTextData::MaskedTextData(const std::string& path, int64_t seq, uint64_t seed, const MaskedVocabulary& vocabulary,
                               const Encode& encode)
    : text_(path, seq - kAround - 1, seed, encode), window_(seq - kAround), seed_(seed), vocabulary_(vocabulary) {}

Batch MaskedTextData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  const int64_t seq = window_ + kAround;
  Batch batch{.input = at::zeros({rows, 3, seq}, at::kLong), .target = at::full({rows, seq}, kNoTarget, at::kLong)};
  batch.input.select(1, 2).fill_(1);
  auto inputs = batch.input.accessor<int64_t, 3>();
  auto targets = batch.target.accessor<int64_t, 2>();
  for (int64_t row = 0; row < rows; ++row) {
    auto tokens = inputs[row][0];
    tokens[0] = vocabulary_.first;
    tokens[seq - 1] = vocabulary_.last;
    const auto window = text_.example(step, first + row);
    for (int64_t i = 0; i < window_; ++i) tokens[i + 1] = window[static_cast<size_t>(i)];
    // Another hash than that which chose the window.
    support::SplitMix random(support::mix(support::mix(support::mix(~seed_) ^ static_cast<uint64_t>(step)) ^
                                          static_cast<uint64_t>(first + row)));
    for (const int64_t place : choose(predictions(window_), window_, random)) {
      targets[row][place + 1] = tokens[place + 1];
      const uint64_t tenth = random.below(10);
      if (tenth < 8) tokens[place + 1] = vocabulary_.mask;
      if (tenth == 8) tokens[place + 1] = static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary_.size)));
    }
  }
  return batch;
}

}  // namespace remat::cli
