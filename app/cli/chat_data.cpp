#include "cli/chat_data.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "cli/fingerprint.h"

namespace remat::cli {
namespace {

std::string fingerprint_of(const std::vector<chat::LearnedTokens>& conversations) {
  std::string text;
  for (const auto& [tokens, learned] : conversations) {
    for (size_t i = 0; i < tokens.size(); ++i) text += std::to_string(tokens[i]) + (learned[i] ? "! " : " ");
    text += '\n';
  }
  return fingerprint(text);
}

}  // namespace

ChatData::ChatData(std::vector<chat::LearnedTokens> conversations, int64_t bytes, int64_t batch, uint64_t seed,
                   std::string notice)
    : conversations_(std::move(conversations)),
      batches_(std::ssize(conversations_), batch, seed),
      bytes_(bytes),
      fingerprint_(fingerprint_of(conversations_)),
      notice_(std::move(notice)) {}

Batch ChatData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  return make_batch(batches_.of_step(step), first, rows);
}

Batch ChatData::evaluation_batch(int64_t index) const {
  const auto which = batches_.in_order(index);
  return make_batch(which, 0, std::ssize(which));
}

const data::Labels& ChatData::labels() const {
  static const data::Labels none;
  return none;
}

Batch ChatData::make_batch(const std::vector<int64_t>& which, int64_t first, int64_t rows) const {
  const auto conversation = [&](int64_t i) -> const auto& { return conversations_[static_cast<size_t>(i)]; };
  int64_t longest = 0, learned = 0;
  for (const int64_t i : which) {
    longest = std::max<int64_t>(longest, std::ssize(conversation(i).tokens));
    learned += std::ranges::count(conversation(i).learned, true);
  }
  // No token sees those behind it: what the padding is, and what the model makes of it, changes nothing.
  Batch batch{.input = at::zeros({rows, longest - 1}, at::kLong),
              .target = at::full({rows, longest - 1}, kNoTarget, at::kLong)};
  auto inputs = batch.input.accessor<int64_t, 2>();
  auto targets = batch.target.accessor<int64_t, 2>();
  int64_t own = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& [tokens, counts] = conversation(which[static_cast<size_t>(first + row)]);
    for (size_t place = 0; place < tokens.size(); ++place) {
      const auto at = static_cast<int64_t>(place);
      if (at + 1 < longest) inputs[row][at] = tokens[place];
      if (counts[place]) targets[row][at - 1] = tokens[place];
    }
    own += std::ranges::count(counts, true);
  }
  batch.weight = static_cast<double>(own * std::ssize(which)) / static_cast<double>(learned * rows);
  return batch;
}

}  // namespace remat::cli
