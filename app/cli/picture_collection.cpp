#include "cli/picture_collection.h"

#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "cli/fingerprint.h"
#include "cli/input_file.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

// One file of each, by which it is recognised.
constexpr const char* kMnist = "train-images-idx3-ubyte";
constexpr const char* kCifar10 = "data_batch_1.bin";
constexpr const char* kCifar100 = "train.bin";

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

bool has(const std::string& directory, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(directory) / name, error);
}

}  // namespace

PictureCollection::PictureCollection(data::Pictures pictures, int64_t classes) : pictures_(std::move(pictures)) {
  for (int64_t i = 0; i < classes; ++i) names_.push_back(std::to_string(i));
  const auto bytes_of = [](const auto& numbers) {
    return std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]);
  };
  fingerprint_ = cli::fingerprint(bytes_of(pictures_.pixels)) + cli::fingerprint(bytes_of(pictures_.classes));
}

data::Picture PictureCollection::read(int64_t index) const {
  const auto& [channels, height, width, pixels, classes] = pictures_;
  const int64_t plane = height * width;
  data::Picture picture{.height = height, .width = width, .pixels = {}};
  picture.pixels.reserve(static_cast<size_t>(3 * plane));
  const uint8_t* const first = pixels.data() + index * channels * plane;
  for (int64_t pixel = 0; pixel < plane; ++pixel) {
    for (int64_t channel = 0; channel < 3; ++channel)
      picture.pixels.push_back(first[(channels == 3 ? channel * plane : 0) + pixel]);
  }
  return picture;
}

bool holds_collection(const std::string& directory) {
  return has(directory, kMnist) || has(directory, kCifar10) || has(directory, kCifar100);
}

std::unique_ptr<PictureCollection> read_collection(const std::string& directory, Split split) {
  const bool training = split == Split::kTraining;
  const auto make = [](data::Pictures pictures, int64_t classes) {
    return std::make_unique<PictureCollection>(std::move(pictures), classes);
  };
  if (has(directory, kMnist)) return make(read_mnist(directory, training ? "train" : "t10k"), 10);
  if (has(directory, kCifar10)) {
    std::vector<std::string> names = {"test_batch.bin"};
    if (training) {
      names = {kCifar10, "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
    }
    return make(read_cifar(directory, names, data::Cifar::k10), 10);
  }
  return make(read_cifar(directory, {training ? kCifar100 : "test.bin"}, data::Cifar::k100), 100);
}

}  // namespace remat::cli
