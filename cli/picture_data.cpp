#include "cli/picture_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "cli/fingerprint.h"
#include "cli/input_file.h"
#include "data/file_error.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kMiddle = 0.5, kScale = 0.25;  // of pixels from 0 to 1

data::Labels numbered_labels(int64_t classes) {
  data::Labels labels;
  for (int64_t i = 0; i < classes; ++i) {
    labels.names.push_back(std::to_string(i));
    labels.numbers.emplace(std::to_string(i), i);
  }
  return labels;
}

std::string read_file(const fs::path& path) {
  return read_input(path.string(), {"data", "give a directory with the files of MNIST, CIFAR-10 or CIFAR-100"});
}

data::Pictures read_mnist(const fs::path& directory, const std::string& name) {
  const auto pictures = directory / (name + "-images-idx3-ubyte"), labels = directory / (name + "-labels-idx1-ubyte");
  const auto pictures_contents = read_file(pictures), labels_contents = read_file(labels);
  return data::read_idx({pictures.string(), pictures_contents}, {labels.string(), labels_contents});
}

data::Pictures read_cifar(const fs::path& directory, const std::vector<std::string>& names, data::Cifar kind) {
  data::Pictures pictures;
  for (const auto& name : names) {
    const auto path = directory / name;
    data::append_cifar({path.string(), read_file(path)}, kind, pictures);
  }
  return pictures;
}

struct Collection {
  data::Pictures pictures;
  int64_t classes = 0;
};

Collection read_collection(const fs::path& directory, Split split) {
  const bool training = split == Split::kTraining;
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    data::refuse_file(directory.string(), (error ? "cannot be read (" + error.message() + ")" : "is no directory") +
                                              "; give the one with the files of MNIST, CIFAR-10 or CIFAR-100");
  }
  const auto has = [&](const char* name) { return fs::exists(directory / name, error); };
  if (has("train-images-idx3-ubyte")) {
    return {read_mnist(directory, training ? "train" : "t10k"), 10};
  }
  if (has("data_batch_1.bin")) {
    std::vector<std::string> names = {"test_batch.bin"};
    if (training) {
      names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
    }
    return {read_cifar(directory, names, data::Cifar::k10), 10};
  }
  if (has("train.bin")) {
    return {read_cifar(directory, {training ? "train.bin" : "test.bin"}, data::Cifar::k100), 100};
  }
  data::refuse_file(directory.string(),
                    "has none of train-images-idx3-ubyte (MNIST), data_batch_1.bin (CIFAR-10) and train.bin "
                    "(CIFAR-100); give the directory of one of these, unpacked, or to classify texts --hf");
}

}  // namespace

PictureData::PictureData(data::Pictures pictures, int64_t classes, int64_t batch, uint64_t seed)
    : pictures_(std::move(pictures)),
      labels_(numbered_labels(classes)),
      batches_(std::ssize(pictures_.classes), batch, seed) {
  const auto bytes_of = [](const auto& numbers) {
    return std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]);
  };
  fingerprint_ = cli::fingerprint(bytes_of(pictures_.pixels)) + cli::fingerprint(bytes_of(pictures_.classes));
}

Batch PictureData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  const auto which = batches_.of_step(step);
  return make_batch(std::span(which).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
}

int64_t PictureData::evaluation_batches() const { return batches_.count(); }

Batch PictureData::evaluation_batch(int64_t index) const { return make_batch(batches_.in_order(index)); }

int64_t PictureData::bytes() const { return std::ssize(pictures_.pixels); }

Batch PictureData::make_batch(std::span<const int64_t> which) const {
  const auto& [channels, height, width, pixels, classes] = pictures_;
  const int64_t rows = std::ssize(which), size = channels * height * width;
  auto bytes = at::empty({rows, channels, height, width}, at::kByte);
  auto target = at::empty({rows}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t i = which[static_cast<size_t>(row)];
    std::copy_n(pixels.begin() + i * size, size, bytes.mutable_data_ptr<uint8_t>() + row * size);
    target.mutable_data_ptr<int64_t>()[row] = classes[static_cast<size_t>(i)];
  }
  const int64_t top = (kPictureSide - height) / 2, left = (kPictureSide - width) / 2;
  const auto framed =
      at::constant_pad_nd(bytes, {left, kPictureSide - width - left, top, kPictureSide - height - top}, 0);
  const auto numbers = (framed.to(at::kFloat) / 255 - kMiddle) / kScale;
  return {.input = numbers.expand({rows, 3, kPictureSide, kPictureSide}).contiguous(), .target = target};
}

std::unique_ptr<TrainingData> read_pictures(const TrainSettings& settings, const std::string& directory, Split split,
                                            const data::Labels& labels) {
  auto [pictures, classes] = read_collection(directory, split);
  if (pictures.height > kPictureSide || pictures.width > kPictureSide) {
    data::refuse_file(directory, "has pictures of " + std::to_string(pictures.height) + " x " +
                                     std::to_string(pictures.width) + " pixels, and models here see " +
                                     std::to_string(kPictureSide) + " x " + std::to_string(kPictureSide) +
                                     "; give smaller ones");
  }
  if (!labels.empty() && labels.classes() != classes) {
    data::refuse_file(directory, "has " + std::to_string(classes) + " classes, and the training has " +
                                     std::to_string(labels.classes()) + "; give the directory of --data");
  }
  return std::make_unique<PictureData>(std::move(pictures), classes, settings.batch, settings.seed);
}

}  // namespace remat::cli
