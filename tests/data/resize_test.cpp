// Pixels are also compared with Pillow's, in tests/python/vit_test.py.
#include "data/resize.h"

#include <gtest/gtest.h>

namespace remat::data {
namespace {

using Pixels = std::vector<uint8_t>;

/// One of grey pixels, whose numbers are given.
Picture grey(int64_t height, int64_t width, const std::vector<int>& numbers) {
  Picture picture{.height = height, .width = width, .pixels = {}};
  for (const int number : numbers) picture.pixels.insert(picture.pixels.end(), 3, static_cast<uint8_t>(number));
  return picture;
}

Pixels reds(const Picture& picture) {
  Pixels result;
  for (size_t i = 0; i < picture.pixels.size(); i += 3) result.push_back(picture.pixels[i]);
  return result;
}

TEST(Resize, TheSameSizeIsTheSamePicture) {
  const auto picture = grey(2, 3, {1, 50, 255, 0, 7, 200});
  EXPECT_EQ(resize(picture, 2, 3).pixels, picture.pixels);
}

TEST(Resize, LargerInterpolatesAndSmallerAverages) {
  EXPECT_EQ(reds(resize(grey(1, 2, {0, 100}), 1, 4)), (Pixels{0, 25, 75, 100}));
  // Weights over four pixels and beyond: 1, 3, 3, 1 eighths, those at the edge of what is there.
  EXPECT_EQ(reds(resize(grey(1, 4, {0, 0, 100, 100}), 1, 2)), (Pixels{14, 86}));
  EXPECT_EQ(reds(resize(grey(4, 1, {0, 0, 100, 100}), 2, 1)), (Pixels{14, 86}));
  EXPECT_EQ(reds(resize(grey(3, 3, {9, 9, 9, 9, 9, 9, 9, 9, 9}), 7, 2)), Pixels(14, 9)) << "weights add up to 1";
}

TEST(Resize, ChannelsStayApart) {
  const Picture picture{.height = 1, .width = 2, .pixels = {0, 100, 200, 40, 100, 0}};
  EXPECT_EQ(resize(picture, 1, 1).pixels, (Pixels{20, 100, 100}));
}

TEST(ResizeToNearest, EachPixelIsAnOldOne) {
  EXPECT_EQ(reds(resize_to_nearest(grey(1, 2, {0, 100}), 1, 4)), (Pixels{0, 0, 100, 100}));
  EXPECT_EQ(reds(resize_to_nearest(grey(5, 1, {1, 2, 3, 4, 5}), 2, 1)), (Pixels{2, 4}));
  const Picture picture{.height = 1, .width = 2, .pixels = {0, 100, 200, 40, 100, 0}};
  EXPECT_EQ(resize_to_nearest(picture, 1, 1).pixels, (Pixels{40, 100, 0})) << "the middle belongs to the second";
}

TEST(ResizeAndCrop, TheMiddleOfTheLongerSide) {
  EXPECT_EQ(reds(resize_and_crop(grey(1, 5, {1, 2, 3, 4, 5}), 1)), (Pixels{3}));
  EXPECT_EQ(reds(resize_and_crop(grey(5, 1, {1, 2, 3, 4, 5}), 1)), (Pixels{3}));
  EXPECT_EQ(reds(resize_and_crop(grey(2, 5, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 2)), (Pixels{3, 4, 8, 9}))
      << "three columns too many: two before, as Python rounds 1.5";
}

TEST(ResizeAndCrop, AVeryLongPictureTakesLittleMemory) {
  const Picture line{.height = 1, .width = 60'000, .pixels = Pixels(180'000, 5)};  // 10 TB if it were not cut
  EXPECT_EQ(resize_and_crop(line, 4096).pixels, Pixels(3 * 4096 * 4096, 5));
}

TEST(Frame, IsBlack) {
  EXPECT_EQ(reds(frame(grey(1, 2, {8, 9}), 4)), (Pixels{0, 0, 0, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace remat::data
