// cli/picture_data.h -- labelled pictures as training examples: all of them once in each epoch, in an order that the
// seed decides.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/picture_source.h"
#include "cli/settings.h"
#include "cli/training_data.h"
#include "data/batches.h"
#include "data/read_ahead.h"
#include "pretrained/picture_processor.h"

namespace remat::cli {

/// How a picture becomes `side` x `side` pixels.
enum class Fit {
  kFrame,   ///< a black frame around it; it is no larger
  kCrop,    ///< data::resize_and_crop()
  kStretch  ///< data::resize(), whatever its proportions were
};

/// A pixel becomes (pixel / white - mean) / deviation, in each channel.
struct PictureForm {
  Fit fit = Fit::kCrop;
  pretrained::PictureProcessor numbers = {};
};

class PictureData final : public TrainingData {
 public:
  /// `labels`: a class for each name of `source`. `batch`: pictures in the batch of a step.
  PictureData(std::unique_ptr<PictureSource> source, data::Labels labels, PictureForm form, int64_t batch,
              uint64_t seed);

  /// Inputs are (rows, 3, side, side). The pictures of the step that follows are read in the background; no tensor is
  /// made there.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// All pictures, in the order of the source.
  int64_t evaluation_batches() const override;
  Batch evaluation_batch(int64_t index) const override;

  const data::Labels& labels() const override { return labels_; }
  int64_t bytes() const override { return source_->bytes(); }
  std::string fingerprint() const override { return source_->fingerprint(); }

 private:
  using Which = std::vector<int64_t>;

  Which rows_of_step(int64_t step, int64_t first, int64_t rows) const;
  Batch make_batch(const Which& which, const Which& next) const;
  /// Of each in turn: rows, columns, channels.
  std::vector<uint8_t> read_pixels(const Which& which) const;

  std::unique_ptr<PictureSource> source_;
  data::Labels labels_;
  PictureForm form_;
  mutable data::Batches batches_;
  mutable data::ReadAhead ahead_;  ///< last: its thread reads the others
};

/// The pictures of a directory: a collection (cli/picture_collection.h) or a folder for each class
/// (cli/picture_folder.h). `model`: what a pretrained model was given; nothing: `settings.model.image_size` pixels.
/// `known`: the names of its classes. They are the data's where all of the data's are among them, or are as many and
/// are their numbers; else the data's classes have the data's names. `given`: the training's labels, of which this data
/// has some; empty: it is the training's. Throws Error as the sources do, for fewer than two classes, for a class that
/// `given` does not have, and for pictures larger than the frame that they would get.
std::unique_ptr<TrainingData> read_pictures(const TrainSettings& settings, const std::string& directory, Split split,
                                            const data::Labels& given = {}, const std::vector<std::string>& known = {},
                                            const std::optional<pretrained::PictureProcessor>& model = std::nullopt);

}  // namespace remat::cli
