#include "cli/text_data.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <remat/error.h>

#include <remat/support/mix.h>
#include "cli/fingerprint.h"
#include "cli/input_file.h"

namespace remat::cli {

TextData::TextData(const std::string& path, int64_t seq, uint64_t seed, const Encode& encode, bool predicts_every_token)
    : text_(read_input(path, {"data", "give a text file"})),
      encoded_(encode != nullptr),
      seq_(seq),
      seed_(seed),
      predicts_every_token_(predicts_every_token) {
  if (encoded_) {
    for (const int64_t token : encode(text_)) tokens_.push_back(static_cast<int32_t>(token));
  }
  if (tokens() < seq + 1) {
    throw Error("[data] '" + path + "' has " + std::to_string(tokens()) + (encoded_ ? " tokens" : " bytes") +
                ", one example needs " + std::to_string(seq + 1) + "; give a longer text or a smaller --seq");
  }
}

std::vector<int64_t> TextData::example(int64_t step, int64_t row) const {
  const auto places = static_cast<uint64_t>(tokens() - seq_);
  const uint64_t place =
      support::mix(support::mix(support::mix(seed_) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(row)) %
      places;
  std::vector<int64_t> example;
  for (size_t i = place; i <= place + static_cast<size_t>(seq_); ++i) {
    example.push_back(encoded_ ? tokens_[i] : static_cast<unsigned char>(text_[i]));
  }
  return example;
}

Batch TextData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  auto tokens = at::empty({rows, seq_ + 1}, at::kLong);
  auto* next = tokens.mutable_data_ptr<int64_t>();
  for (int64_t row = first; row < first + rows; ++row) next = std::ranges::copy(example(step, row), next).out;
  return {.input = tokens.slice(1, 0, -1), .target = tokens.slice(1, predicts_every_token_ ? 1 : -1)};
}

const data::Labels& TextData::labels() const {
  static const data::Labels none;
  return none;
}

std::string TextData::fingerprint() const { return cli::fingerprint(text_); }

}  // namespace remat::cli
