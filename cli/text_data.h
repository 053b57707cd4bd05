// cli/text_data.h -- a text as training examples: windows of bytes at random places.
//
// The place of every window is a function of seed, step and row alone. So there is no position to store in a checkpoint
// beside the step's number, and a resumed run reads exactly what an uninterrupted one would have read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remat::cli {

class TextData {
 public:
  /// Reads the file. `seq`: bytes of context in an example. Throws Error for a file that cannot be read, is a directory
  /// or a device, or is too short for one example.
  TextData(const std::string& path, int64_t seq, uint64_t seed);

  /// The example in row `row` of step `step`: seq bytes of context and the byte after them. Valid as long as this
  /// lives.
  std::string_view example(int64_t step, int64_t row) const;

  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }
  /// 64 bits that stand for the text, in hexadecimal digits.
  std::string fingerprint() const;

 private:
  std::string text_;
  int64_t seq_;
  uint64_t seed_;
};

}  // namespace remat::cli
