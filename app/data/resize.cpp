#include "data/resize.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace remat::data {
namespace {

constexpr int32_t kOne = 1 << 22;  // the sum of all weights; 255 times it is below 2^31
constexpr int64_t kChannels = 3;

/// Of one new pixel: the old ones from `first` on.
struct Weights {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

/// As Pillow rounds.
int64_t nearest(double number) {
  return static_cast<int64_t>(number + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

/// Of the new pixels `begin` to `begin + count`, where `from` pixels become `to`.
std::vector<Weights> find_weights(int64_t from, int64_t to, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<Weights> result(static_cast<size_t>(count));
  std::vector<double> exact;
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, nearest(center - reach));
    const auto end = std::min(from, nearest(center + reach));
    exact.clear();
    double sum = 0;
    for (int64_t old = first; old < end; ++old) {
      exact.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(old) - center + 0.5) * (1.0 / reach))));
      sum += exact.back();
    }
    auto& of = result[static_cast<size_t>(i)];
    of.first = first;
    for (const double weight : exact) of.weights.push_back(static_cast<int32_t>(nearest(weight / sum * kOne)));
  }
  return result;
}

/// A channel of a new pixel, from those of old ones, which are `stride` apart.
uint8_t mean(const Weights& of, const uint8_t* old, int64_t stride) {
  int32_t sum = kOne / 2;
  for (const int32_t weight : of.weights) {
    sum += weight * *old;
    old += stride;
  }
  return static_cast<uint8_t>(std::min(sum / kOne, 255));
}

struct Part {
  int64_t top, left, height, width;
};

/// A part of what resize() gives. The rest is not computed: it may be large, where a picture is narrow.
Picture resize_part(const Picture& picture, int64_t height, int64_t width, const Part& part) {
  const auto rows = find_weights(picture.height, height, part.top, part.height);
  const auto columns = find_weights(picture.width, width, part.left, part.width);
  const int64_t first = rows.front().first, end = rows.back().first + std::ssize(rows.back().weights);
  std::vector<uint8_t> narrow;
  const int64_t stride = part.width * kChannels;
  narrow.reserve(static_cast<size_t>((end - first) * stride));
  for (int64_t row = first; row < end; ++row) {
    const uint8_t* const old = picture.pixels.data() + row * picture.width * kChannels;
    for (const auto& of : columns) {
      for (int64_t channel = 0; channel < kChannels; ++channel)
        narrow.push_back(mean(of, old + of.first * kChannels + channel, kChannels));
    }
  }
  Picture result{.height = part.height, .width = part.width, .pixels = {}};
  result.pixels.reserve(static_cast<size_t>(part.height * stride));
  for (const auto& of : rows) {
    for (int64_t i = 0; i < stride; ++i)
      result.pixels.push_back(mean(of, narrow.data() + (of.first - first) * stride + i, stride));
  }
  return result;
}

/// For each new pixel the old one. The steps are added up, as Pillow does, and not multiplied: places may lie between
/// two.
std::vector<int64_t> places(int64_t from, int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> result;
  double place = step * 0.5;
  for (int64_t i = 0; i < to; ++i, place += step) result.push_back(std::min(static_cast<int64_t>(place), from - 1));
  return result;
}

/// Half of it, rounded to an even number where it lies between two, as Python's round() does.
int64_t half(int64_t pixels) { return std::lrint(static_cast<double>(pixels) / 2); }

}  // namespace

Picture resize(const Picture& picture, int64_t height, int64_t width) {
  return resize_part(picture, height, width, {.top = 0, .left = 0, .height = height, .width = width});
}

Picture resize_to_nearest(const Picture& picture, int64_t height, int64_t width) {
  const auto rows = places(picture.height, height), columns = places(picture.width, width);
  Picture result{.height = height, .width = width, .pixels = {}};
  result.pixels.reserve(static_cast<size_t>(height * width * kChannels));
  for (const int64_t row : rows) {
    for (const int64_t column : columns) {
      const auto first = picture.pixels.begin() + (row * picture.width + column) * kChannels;
      result.pixels.insert(result.pixels.end(), first, first + kChannels);
    }
  }
  return result;
}

Picture resize_and_crop(const Picture& picture, int64_t side) {
  const int64_t shorter = std::min(picture.height, picture.width);
  const int64_t height = side * picture.height / shorter, width = side * picture.width / shorter;
  return resize_part(picture, height, width,
                     {.top = half(height - side), .left = half(width - side), .height = side, .width = side});
}

Picture frame(const Picture& picture, int64_t side) {
  Picture result{.height = side, .width = side, .pixels = {}};
  result.pixels.resize(static_cast<size_t>(side * side * kChannels));
  const int64_t top = (side - picture.height) / 2, left = (side - picture.width) / 2;
  for (int64_t row = 0; row < picture.height; ++row) {
    std::copy_n(picture.pixels.begin() + row * picture.width * kChannels, picture.width * kChannels,
                result.pixels.begin() + ((top + row) * side + left) * kChannels);
  }
  return result;
}

}  // namespace remat::data
