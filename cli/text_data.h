// cli/text_data.h -- a text as training examples: windows of tokens (bytes, or a tokenizer's) at random places.
//
// The place of every window is a function of seed, step and row alone. So there is no position to store in a checkpoint
// beside the step's number, and a resumed run reads exactly what an uninterrupted one would have read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace remat::cli {

/// The numbers of the tokens of a text.
using Encode = std::function<std::vector<int64_t>(std::string_view text)>;

class TextData {
 public:
  /// Reads the file. `seq`: tokens of context in an example. `encode` empty: every byte is a token. Throws Error for a
  /// file that cannot be read, is a directory or a device, or is too short for one example.
  TextData(const std::string& path, int64_t seq, uint64_t seed, const Encode& encode = {});

  /// The example in row `row` of step `step`: seq tokens of context and the one after them.
  std::vector<int64_t> example(int64_t step, int64_t row) const;

  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }
  int64_t tokens() const { return encoded_ ? static_cast<int64_t>(tokens_.size()) : bytes(); }
  /// 64 bits that stand for the text, in hexadecimal digits.
  std::string fingerprint() const;

 private:
  std::string text_;
  std::vector<int32_t> tokens_;
  bool encoded_ = false;  ///< else the text's bytes are the tokens
  int64_t seq_;
  uint64_t seed_;
};

}  // namespace remat::cli
