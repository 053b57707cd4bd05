#include "data/pictures.h"

#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::data {
namespace {

using Numbers = std::vector<int64_t>;

std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xFF);
  return bytes;
}

std::string idx(const std::vector<uint32_t>& sizes, const std::string& data) {
  std::string file = big_endian(0x0800 + static_cast<uint32_t>(sizes.size()));
  for (const uint32_t size : sizes) file += big_endian(size);
  return file + data;
}

Pictures read_pair(const std::string& pictures, const std::string& labels) {
  return read_idx({"images", pictures}, {"labels", labels});
}

const std::string kPictures = idx({2, 2, 3}, "abcdefghijk\xFF");
const std::string kLabels = idx({2}, std::string("\x09\x00", 2));

TEST(Idx, PicturesAndLabelsAreRead) {
  const auto pictures = read_pair(kPictures, kLabels);
  EXPECT_EQ(pictures.channels, 1);
  EXPECT_EQ(pictures.height, 2);
  EXPECT_EQ(pictures.width, 3);
  EXPECT_EQ(pictures.classes, (Numbers{9, 0}));
  ASSERT_EQ(pictures.pixels.size(), 12u);
  EXPECT_EQ(pictures.pixels.front(), 'a');
  EXPECT_EQ(pictures.pixels.back(), 255);
}

TEST(Idx, OtherFilesAreRefused) {
  EXPECT_ERROR(read_pair(kLabels, kLabels), "[data] 'images' has 10 bytes, and 16 come before the data");
  EXPECT_ERROR(read_pair(kPictures, kPictures), "[data] 'labels' does not begin with the magic number 0x00000801");
  EXPECT_ERROR(read_pair("\x1F\x8B" + kPictures, kLabels), "does not begin with the magic number 0x00000803");
  EXPECT_ERROR(read_pair("", kLabels), "'images' has 0 bytes");
}

TEST(Idx, SizesAreThoseOfTheFile) {
  EXPECT_ERROR(read_pair(kPictures + "x", kLabels), "'images' has 29 bytes, and its beginning says 28; get");
  EXPECT_ERROR(read_pair(kPictures.substr(0, 27), kLabels), "'images' has 27 bytes, and its beginning says 28; get");
  EXPECT_ERROR(read_pair(kPictures, idx({3}, "\1\2\3")), "'labels' has 3 labels, and 'images' has 2 pictures");
  EXPECT_ERROR(read_pair(idx({0, 2, 3}, ""), idx({0}, "")), "'images' has no examples");
  EXPECT_ERROR(read_pair(idx({2, 0, 3}, ""), kLabels), "pictures with a side of 0 pixels");
  EXPECT_ERROR(read_pair(idx({0xFFFFFFFF, 1024, 1024}, ""), kLabels), "its beginning says 4503599626321936");
  EXPECT_ERROR(read_pair(idx({1, 0xFFFFFFFF, 0xFFFFFFFF}, ""), kLabels), "pictures with a side of 4294967295 pixels");
}

TEST(Idx, LabelsAreDigits) {
  EXPECT_ERROR(read_pair(kPictures, idx({2}, "\1\x0A")), "'labels' has label 10 for picture 1, and there are 0 to 9");
}

std::string record(const std::string& labels, char pixel) { return labels + std::string(3072, pixel); }

TEST(CifarFiles, RecordsOfSeveralFilesAreAppended) {
  Pictures pictures;
  append_cifar({"a", record("\x09", 'x') + record("\x01", 'y')}, Cifar::k10, pictures);
  append_cifar({"b", record("\x05", '\xFF')}, Cifar::k10, pictures);
  EXPECT_EQ(pictures.channels, 3);
  EXPECT_EQ(pictures.height, 32);
  EXPECT_EQ(pictures.width, 32);
  EXPECT_EQ(pictures.classes, (Numbers{9, 1, 5}));
  ASSERT_EQ(pictures.pixels.size(), 3u * 3072);
  EXPECT_EQ(pictures.pixels[3071], 'x');
  EXPECT_EQ(pictures.pixels[3072], 'y');
  EXPECT_EQ(pictures.pixels.back(), 255);
}

TEST(CifarFiles, TheSecondLabelOfAHundredIsTheClass) {
  Pictures pictures;
  append_cifar({"train.bin", record("\x13\x63", 'x')}, Cifar::k100, pictures);
  EXPECT_EQ(pictures.classes, (Numbers{99}));
  EXPECT_EQ(pictures.pixels.size(), 3072u);
}

TEST(CifarFiles, OtherFilesAreRefused) {
  const auto append = [](const std::string& contents, Cifar kind) {
    Pictures pictures;
    append_cifar({"x.bin", contents}, kind, pictures);
  };
  EXPECT_ERROR(append("", Cifar::k10), "[data] 'x.bin' has 0 bytes, not one or more records of 3073");
  EXPECT_ERROR(append(record("\x09", 'x') + "y", Cifar::k10), "'x.bin' has 3074 bytes, not one or more records");
  EXPECT_ERROR(append(record("\x09", 'x'), Cifar::k100), "has 3073 bytes, not one or more records of 3074");
  EXPECT_ERROR(append(record("\x01", 'x') + record("\x0A", 'x'), Cifar::k10),
               "'x.bin' has label 10 for picture 1, and there are 0 to 9");
  EXPECT_ERROR(append(record("\x01\x64", 'x'), Cifar::k100), "has label 100 for picture 0, and there are 0 to 99");
}

TEST(Idx, MutatedFilesGivePicturesOrErrors) {
  std::mt19937 random(0);
  int read_well = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string files[] = {kPictures, kLabels};
    auto& file = files[random() % 2];
    const size_t at = random() % file.size();
    if (random() % 8 == 0) {
      file.erase(at, random() % 4);
    } else {
      file[at] = static_cast<char>(random() % (random() % 2 == 0 ? 4 : 256));
    }
    try {
      const auto pictures = read_pair(files[0], files[1]);
      EXPECT_EQ(static_cast<int64_t>(pictures.pixels.size()),
                static_cast<int64_t>(pictures.classes.size()) * pictures.height * pictures.width);
      ++read_well;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read_well, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace remat::data
