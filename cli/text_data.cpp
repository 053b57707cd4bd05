#include "cli/text_data.h"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <remat/error.h>

#include "cli/input_file.h"

namespace remat::cli {
namespace {

// SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit of x.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

TextData::TextData(const std::string& path, int64_t seq, uint64_t seed, const Encode& encode)
    : text_(read_input(path, {"data", "give a text file"})), encoded_(encode != nullptr), seq_(seq), seed_(seed) {
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
  const uint64_t place = mix(mix(mix(seed_) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(row)) % places;
  std::vector<int64_t> example;
  for (size_t i = place; i <= place + static_cast<size_t>(seq_); ++i) {
    example.push_back(encoded_ ? tokens_[i] : static_cast<unsigned char>(text_[i]));
  }
  return example;
}

std::string TextData::fingerprint() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(text_.data(), text_.size())));
  return digits;
}

}  // namespace remat::cli
