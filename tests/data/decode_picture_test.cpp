#include "data/decode_picture.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "data/picture_samples.h"
#include "support/expect_error.h"

namespace remat::data {
namespace {

using Pixels = std::vector<uint8_t>;

Picture decode(const std::string& contents) { return decode_picture({"file", contents}); }

class DecodePicture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::error_of([] { decode(kRgbPng); }).find("without libpng or libjpeg") != std::string::npos)
      GTEST_SKIP() << "this build has no libpng or no libjpeg";
  }
};

/// That of the PNG format, of a chunk's name and data.
uint32_t checksum(std::string_view bytes) {
  uint32_t rest = 0xFFFFFFFF;
  for (const char byte : bytes) {
    rest ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320 : 0);
  }
  return ~rest;
}

std::string big_endian_bytes(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xFF);
  return bytes;
}

/// With the checksum that each chunk should have, as far as chunks are whole.
std::string with_checksums(std::string png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    uint32_t size = 0;
    for (size_t i = at; i < at + 4; ++i) size = size << 8 | static_cast<uint8_t>(png[i]);
    if (size > png.size() - at - 12) break;
    png.replace(at + 8 + size, 4, big_endian_bytes(checksum(std::string_view(png).substr(at + 4, size + 4))));
    at += 12 + size;
  }
  return png;
}

/// kRgbPng with another width and height.
std::string sized(uint32_t width, uint32_t height) {
  auto png = kRgbPng;
  png.replace(16, 8, big_endian_bytes(width) + big_endian_bytes(height));
  return with_checksums(png);
}

TEST_F(DecodePicture, PixelsOfPngs) {
  const auto rgb = decode(kRgbPng);
  EXPECT_EQ(rgb.height, 2);
  EXPECT_EQ(rgb.width, 3);
  EXPECT_EQ(rgb.pixels, (Pixels{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 40, 50, 60, 70, 80, 90}));
  EXPECT_EQ(decode(kPalettePng).pixels, rgb.pixels);
  EXPECT_EQ(decode(kGreyAlphaPng).pixels, (Pixels{0, 0, 0, 77, 77, 77}));
  const auto deep = decode(kInterlacedPng);
  ASSERT_EQ(deep.pixels.size(), 60u);
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(deep.pixels[i], (1093 * i + 255) % 65536 / 256) << i;
}

TEST_F(DecodePicture, PixelsOfJpegs) {
  for (const auto* file : {&kBaselineJpeg, &kProgressiveJpeg}) {
    const auto picture = decode(*file);
    ASSERT_EQ(picture.height, 16);
    ASSERT_EQ(picture.width, 16);
    for (size_t i = 0; i < 256; ++i) {
      const int row = static_cast<int>(i / 16), column = static_cast<int>(i % 16);
      const int colours[] = {16 * column, 16 * row, 255 - 8 * (column + row)};
      for (size_t channel = 0; channel < 3; ++channel)
        EXPECT_NEAR(picture.pixels[3 * i + channel], colours[channel], 40) << i;
    }
  }
  const auto inks = decode(kInkJpeg).pixels;
  EXPECT_EQ((Pixels{inks.begin(), inks.begin() + 3}), (Pixels{8, 21, 28})) << "as Pillow converts CMYK";
}

TEST_F(DecodePicture, LargeSizesAreRefusedBeforeMemoryIsTaken) {
  EXPECT_ERROR(decode(sized(100'000, 100'000)), "[data] 'file' has 100000 x 100000 pixels, and at most 100000000");
  EXPECT_ERROR(decode(sized(70'000, 1)), "has 70000 x 1 pixels");
  EXPECT_ERROR(decode(sized(0x7FFFFFFF, 0x7FFFFFFF)), "'file' cannot be read as PNG (");
  EXPECT_ERROR(decode(sized(0, 5)), "'file' cannot be read as PNG (");
  auto jpeg = kBaselineJpeg;
  const auto frame = jpeg.find("\xFF\xC0");
  jpeg.replace(frame + 5, 4, "\xFD\xE8\xFD\xE8");  // 65,000
  EXPECT_ERROR(decode(jpeg), "'file' has 65000 x 65000 pixels");
}

TEST_F(DecodePicture, DamagedFilesAreRefused) {
  EXPECT_ERROR(decode(kRgbPng.substr(0, kRgbPng.size() - 1)), "cannot be read as PNG (the file is truncated)");
  for (const auto* file : {&kBaselineJpeg, &kProgressiveJpeg})
    EXPECT_ERROR(decode(file->substr(0, file->size() - 20)), "cannot be read as JPEG (Premature end of JPEG file)");
  auto damaged = kRgbPng;
  damaged[45] ^= 1;
  EXPECT_ERROR(decode(damaged), "'file' cannot be read as PNG (");
  EXPECT_ERROR(decode(""), "'file' is empty");
  EXPECT_ERROR(decode("GIF89a"), "'file' is neither a PNG nor a JPEG file");
}

TEST_F(DecodePicture, AFileOfManyScansIsRefused) {
  const auto begin = kProgressiveJpeg.find("\xFF\xDA");  // the first scan, which may come again
  const auto end = std::min(kProgressiveJpeg.find("\xFF\xC4", begin), kProgressiveJpeg.find("\xFF\xDA", begin + 2));
  auto file = kProgressiveJpeg.substr(0, end);
  for (int i = 0; i < 200; ++i) file += kProgressiveJpeg.substr(begin, end - begin);
  EXPECT_ERROR(decode(file + kProgressiveJpeg.substr(end)), "cannot be read as JPEG (it has too many scans)");
}

/// 14,000 mutations: each is decoded or refused by name.
TEST_F(DecodePicture, MutatedFiles) {
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return random() % bound; };
  int64_t refused = 0, decoded = 0;
  for (const auto* file :
       {&kRgbPng, &kPalettePng, &kGreyAlphaPng, &kInterlacedPng, &kBaselineJpeg, &kProgressiveJpeg, &kInkJpeg}) {
    for (int i = 0; i < 2000; ++i) {
      auto mutated = *file;
      for (size_t change = 0; change <= below(4); ++change) {
        const auto at = below(mutated.size());
        const auto count = below(8);
        switch (below(4)) {
          case 0:
            mutated[at] = static_cast<char>(random());
            break;
          case 1:
            mutated.erase(at, count);
            break;
          case 2:
            mutated.insert(at, count, static_cast<char>(random()));
            break;
          default:
            mutated.insert(at, mutated.substr(below(mutated.size()), 8 * count));
        }
        if (mutated.empty()) break;
      }
      if (i % 2 == 0 && mutated.starts_with("\x89PNG")) mutated = with_checksums(mutated);
      const auto error = test::error_of([&] {
        const auto picture = decode(mutated);
        ASSERT_EQ(static_cast<int64_t>(picture.pixels.size()), 3 * picture.height * picture.width);
      });
      if (error == "(no error)") {
        ++decoded;
      } else {
        ASSERT_TRUE(error.starts_with("[data] 'file' ")) << error;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(decoded, 500);
}

TEST(HasPictureName, EndsAsAPictureDoes) {
  for (const auto* name : {"a.png", "a/b.JPG", "c.jpeg", "d.Png"}) EXPECT_TRUE(has_picture_name(name)) << name;
  for (const auto* name : {"", ".png", "a.txt", "png", "a.png.txt"}) EXPECT_FALSE(has_picture_name(name)) << name;
}

}  // namespace
}  // namespace remat::data
