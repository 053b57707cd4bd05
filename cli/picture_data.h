// cli/picture_data.h -- labelled pictures as training examples: all of them once in each epoch, in an order that the
// seed decides.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/training_data.h"
#include "data/batches.h"
#include "data/pictures.h"

namespace remat::cli {

/// Pixels on each side of what models see; smaller pictures get a black frame, as MNIST's 28 x 28.
constexpr int64_t kPictureSide = 32;

class PictureData final : public TrainingData {
 public:
  /// `pictures`: one or more, of 1 or 3 channels. `batch`: pictures in the batch of a step.
  PictureData(data::Pictures pictures, int64_t classes, int64_t batch, uint64_t seed);

  /// Inputs are (rows, 3, kPictureSide, kPictureSide) numbers from -2 to 2; grey is repeated in three channels.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// All pictures, in the order of the file.
  int64_t evaluation_batches() const override;
  Batch evaluation_batch(int64_t index) const override;

  const data::Labels& labels() const override { return labels_; }
  int64_t bytes() const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  Batch make_batch(std::span<const int64_t> which) const;

  data::Pictures pictures_;
  data::Labels labels_;
  mutable data::Batches batches_;
  std::string fingerprint_;
};

enum class Split { kTraining, kTest };

/// The pictures of a directory with MNIST's files, unpacked, or those of CIFAR-10 or CIFAR-100 (binary version).
/// `labels`: those that there must be; empty: any. Throws Error where there are no such files, for a file that is not
/// of their form, for pictures larger than kPictureSide, and for another number of classes than `labels` has.
std::unique_ptr<TrainingData> read_pictures(const TrainSettings& settings, const std::string& directory, Split split,
                                            const data::Labels& labels = {});

}  // namespace remat::cli
