#include "cli/picture_data.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cli/picture_collection.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

/// Pictures of 2 x 3 pixels; all of picture i are i, and its class is i % 10.
data::Pictures make_pictures(int64_t count, int64_t channels) {
  data::Pictures pictures{.channels = channels, .height = 2, .width = 3, .pixels = {}, .classes = {}};
  for (int64_t i = 0; i < count; ++i) {
    pictures.pixels.insert(pictures.pixels.end(), static_cast<size_t>(channels * 6), static_cast<uint8_t>(i));
    pictures.classes.push_back(i % 10);
  }
  return pictures;
}

PictureData make_picture_data(data::Pictures pictures, int64_t batch, uint64_t seed = 0) {
  auto source = std::make_unique<PictureCollection>(std::move(pictures), /*classes=*/10);
  data::Labels labels{.names = source->class_names(), .numbers = {}};
  for (int64_t i = 0; i < 10; ++i) labels.numbers.emplace(std::to_string(i), i);
  return {std::move(source), std::move(labels), {.fit = Fit::kFrame, .numbers = {.side = 32}}, batch, seed};
}

PictureData make_picture_data(int64_t count, int64_t channels, int64_t batch, uint64_t seed = 0) {
  return make_picture_data(make_pictures(count, channels), batch, seed);
}

/// The value in the middle of each picture, as it was in the file.
std::vector<int64_t> pictures_of(const Batch& batch) {
  const auto pixels = ((batch.input.select(1, 0).select(1, 16).select(1, 16) * 0.25 + 0.5) * 255).round().to(at::kLong);
  return {pixels.const_data_ptr<int64_t>(), pixels.const_data_ptr<int64_t>() + pixels.numel()};
}

TEST(PictureData, PicturesHaveABlackFrame) {
  const auto batch = make_picture_data(256, 1, 256).evaluation_batch(0);
  ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{256, 3, 32, 32}));
  const auto white = batch.input.select(0, 255);
  EXPECT_EQ(white.max().item<float>(), 2);
  EXPECT_EQ(white.min().item<float>(), -2);
  EXPECT_EQ((white == 2).sum().item<int64_t>(), 3 * 6) << "grey in three channels";
  EXPECT_EQ((white.select(0, 1).slice(0, 15, 17).slice(1, 14, 17) == 2).sum().item<int64_t>(), 6) << "in the middle";
  EXPECT_EQ(batch.target.select(0, 255).item<int64_t>(), 5);
}

TEST(PictureData, EveryPictureIsEvaluatedOnce) {
  const auto data = make_picture_data(8, 3, 3);
  ASSERT_EQ(data.evaluation_batches(), 3);
  EXPECT_EQ(pictures_of(data.evaluation_batch(2)), (std::vector<int64_t>{6, 7}));
}

TEST(PictureData, BatchesDependOnSeedAndStepAlone) {
  const auto data = make_picture_data(50, 3, 8), same = make_picture_data(50, 3, 8),
             other = make_picture_data(50, 3, 8, /*seed=*/1);
  const auto late = data.training_batch(20, 0, 8);
  EXPECT_EQ(pictures_of(late), pictures_of(same.training_batch(20, 0, 8)));
  EXPECT_NE(pictures_of(late), pictures_of(other.training_batch(20, 0, 8)));
  EXPECT_NE(pictures_of(data.training_batch(1, 0, 8)), pictures_of(data.training_batch(2, 0, 8)));
  EXPECT_TRUE(at::equal(data.training_batch(20, 4, 4).input, late.input.slice(0, 4)));
}

TEST(PictureData, FingerprintTellsPicturesApart) {
  auto pictures = make_pictures(5, 1);
  const auto data = make_picture_data(pictures, 2), same = make_picture_data(pictures, 3, /*seed=*/1);
  pictures.classes[4] = 9;
  const auto other = make_picture_data(pictures, 2);
  EXPECT_EQ(data.fingerprint(), same.fingerprint());
  EXPECT_NE(data.fingerprint(), other.fingerprint());
}

TEST(PictureData, LargerPicturesAreRefused) {
  const test::TemporaryDirectory directory;
  const auto zero = [](size_t count) { return std::string(count, '\0'); };
  directory.write("train-images-idx3-ubyte",
                  zero(2) + "\x08\x03" + zero(3) + "\x01" + zero(3) + "\x21" + zero(3) + "\x20" + zero(33 * 32));
  directory.write("train-labels-idx1-ubyte", zero(2) + "\x08\x01" + zero(3) + "\x01" + zero(1));
  EXPECT_ERROR(read_pictures(TrainSettings(), directory.path(""), Split::kTraining), "has pictures of 33 x 32 pixels");
}

}  // namespace
}  // namespace remat::cli
