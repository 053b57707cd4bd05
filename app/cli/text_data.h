// cli/text_data.h -- a text as training examples: windows of tokens (bytes, or a tokenizer's) at random places.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/training_data.h"

namespace remat::cli {

/// The numbers of the tokens of a text.
using Encode = std::function<std::vector<int64_t>(std::string_view text)>;

class TextData final : public TrainingData {
 public:
  /// Reads the file. `seq`: tokens of context in an example. `encode` empty: every byte is a token. Throws Error for a
  /// file that cannot be read, is a directory or a device, or is too short for one example. `predicts_every_token`:
  /// targets are the tokens after each position, or the one after the context alone.
  TextData(const std::string& path, int64_t seq, uint64_t seed, const Encode& encode = {},
           bool predicts_every_token = true);

  /// The example in row `row` of step `step`: seq tokens of context and the one after them.
  std::vector<int64_t> example(int64_t step, int64_t row) const;

  /// Inputs and targets are views of the same tokens.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// Windows, each a batch of its own: enough for two digits of a loss. They are those of step 0, which no training
  /// has.
  int64_t evaluation_batches() const override { return 64; }
  Batch evaluation_batch(int64_t index) const override { return training_batch(/*step=*/0, index, /*rows=*/1); }
  const data::Labels& labels() const override;

  int64_t bytes() const override { return static_cast<int64_t>(text_.size()); }
  int64_t tokens() const { return encoded_ ? static_cast<int64_t>(tokens_.size()) : bytes(); }
  std::string fingerprint() const override;

 private:
  std::string text_;
  std::vector<int32_t> tokens_;
  bool encoded_ = false;  ///< else the text's bytes are the tokens
  int64_t seq_;
  uint64_t seed_;
  bool predicts_every_token_;
};

}  // namespace remat::cli
