#include "cli/picture_data.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

#include "cli/picture_collection.h"
#include "cli/picture_folder.h"
#include "data/file_error.h"
#include "data/resize.h"

namespace remat::cli {
namespace {

constexpr int64_t kChannels = 3;

at::Tensor of_channels(const std::array<double, 3>& numbers) {
  return at::tensor({numbers[0], numbers[1], numbers[2]}, at::kFloat).view({kChannels, 1, 1});
}

data::Labels named(const std::vector<std::string>& names) {
  data::Labels labels{.names = names, .numbers = {}};
  for (const auto& name : names) labels.numbers.emplace(name, static_cast<int64_t>(labels.numbers.size()));
  return labels;
}

data::Labels find_labels(const std::string& path, const std::vector<std::string>& names,
                         const std::vector<std::string>& known) {
  if (names.size() == 1) {
    data::refuse_file(path, "has the class '" + names.front() + "' alone; give pictures of two classes or more");
  }
  auto labels = named(known);
  if (std::ranges::all_of(names, [&](const auto& name) { return labels.numbers.contains(name); })) return labels;
  std::vector<data::LabelledText> examples;
  examples.reserve(names.size());
  for (const auto& name : names) examples.push_back({.text = {}, .label = name, .line = 0});
  if (names.size() != known.size()) return named(names);
  auto numbered = data::find_labels(path, examples, known);
  return numbered.names == known ? numbered : named(names);
}

void check_given(const std::string& path, const std::vector<std::string>& names, const data::Labels& given) {
  const auto unknown = std::ranges::find_if(names, [&](const auto& name) { return !given.numbers.contains(name); });
  if (unknown == names.end()) return;
  data::refuse_file(path, "has the class '" + *unknown + "', which is none of the training's, " +
                              data::list_names(given.names) + "; give pictures of these");
}

}  // namespace

PictureData::PictureData(std::unique_ptr<PictureSource> source, data::Labels labels, PictureForm form, int64_t batch,
                         uint64_t seed)
    : source_(std::move(source)),
      labels_(std::move(labels)),
      form_(form),
      batches_(source_->size(), batch, seed),
      ahead_([this](const Which& which) { return read_pixels(which); }) {}

Batch PictureData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  const auto which = rows_of_step(step, first, rows);
  return make_batch(which, rows_of_step(step + 1, first, rows));
}

int64_t PictureData::evaluation_batches() const { return batches_.count(); }

Batch PictureData::evaluation_batch(int64_t index) const {
  const bool last = index + 1 == batches_.count();
  return make_batch(batches_.in_order(index), last ? Which() : batches_.in_order(index + 1));
}

PictureData::Which PictureData::rows_of_step(int64_t step, int64_t first, int64_t rows) const {
  const auto which = batches_.of_step(step);
  return {which.begin() + first, which.begin() + first + rows};
}

std::vector<uint8_t> PictureData::read_pixels(const Which& which) const {
  const int64_t side = form_.numbers.side;
  std::vector<uint8_t> pixels;
  pixels.reserve(which.size() * static_cast<size_t>(side * side * kChannels));
  for (const int64_t index : which) {
    const auto picture = source_->read(index);
    const auto made = form_.fit == Fit::kFrame  ? data::frame(picture, side)
                      : form_.fit == Fit::kCrop ? data::resize_and_crop(picture, side)
                      : form_.numbers.nearest   ? data::resize_to_nearest(picture, side, side)
                                                : data::resize(picture, side, side);
    pixels.insert(pixels.end(), made.pixels.begin(), made.pixels.end());
  }
  return pixels;
}

Batch PictureData::make_batch(const Which& which, const Which& next) const {
  const auto pixels = ahead_.get(which, next);
  const auto& [side, nearest, white, mean, deviation] = form_.numbers;
  const int64_t rows = std::ssize(which);
  auto bytes = at::empty({rows, side, side, kChannels}, at::kByte);
  std::ranges::copy(pixels, bytes.mutable_data_ptr<uint8_t>());
  auto target = at::empty({rows}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& name = source_->class_names()[static_cast<size_t>(source_->class_of(which[static_cast<size_t>(row)]))];
    target.mutable_data_ptr<int64_t>()[row] = labels_.numbers.at(name);
  }
  const auto numbers = bytes.permute({0, 3, 1, 2}).contiguous().to(at::kFloat) / white;
  return {.input = (numbers - of_channels(mean)) / of_channels(deviation), .target = target};
}

std::unique_ptr<TrainingData> read_pictures(const TrainSettings& settings, const std::string& directory, Split split,
                                            const data::Labels& given, const std::vector<std::string>& known,
                                            const std::optional<pretrained::PictureProcessor>& model) {
  PictureForm form;
  if (model) form = {.fit = Fit::kStretch, .numbers = *model};
  if (!model) form.numbers.side = picture_side(settings.model);
  std::unique_ptr<PictureSource> source;
  if (holds_collection(directory)) {
    auto collection = read_collection(directory, split);
    if (!model && settings.model.image_size == 0) {
      form.fit = Fit::kFrame;
      const int64_t side = form.numbers.side;
      if (collection->height() > side || collection->width() > side) {
        data::refuse_file(directory, "has pictures of " + std::to_string(collection->height()) + " x " +
                                         std::to_string(collection->width()) + " pixels, and models here see " +
                                         std::to_string(side) + " x " + std::to_string(side) +
                                         "; give smaller ones, or an --image-size");
      }
    }
    if (!given.empty() && given.classes() != std::ssize(collection->class_names())) {
      data::refuse_file(directory, "has " + std::to_string(collection->class_names().size()) +
                                       " classes, and the training has " + std::to_string(given.classes()) +
                                       "; give the directory of --data");
    }
    source = std::move(collection);
  } else {
    source = std::make_unique<PictureFolder>(directory);
  }
  const auto& names = source->class_names();
  auto labels = given.empty() ? find_labels(directory, names, known) : given;
  check_given(directory, names, labels);
  return std::make_unique<PictureData>(std::move(source), std::move(labels), form, settings.batch, settings.seed);
}

}  // namespace remat::cli
