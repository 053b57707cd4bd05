// cli/training_data.h -- what a training learns from: batches of examples.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "data/labels.h"

namespace remat::cli {

/// Examples, along the first dimension of both.
struct Batch {
  at::Tensor input;
  at::Tensor target;  ///< the number of a class (or token) for each prediction of the model, or kNoTarget
  /// By which the mean loss of these rows counts in that of the step's whole batch, beside their number: 1, but where
  /// rows have different numbers of predictions that count.
  double weight = 1;
};

inline constexpr int64_t kNoTarget = -100;  ///< what torch's cross-entropy leaves out

/// The batch of every step is a function of seed, step and row alone. So there is no position to store in a checkpoint
/// beside the step's number, and a resumed run reads exactly what an uninterrupted one would have read.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  /// Rows `first` to `first + rows` of the batch of step `step`, from 1.
  virtual Batch training_batch(int64_t step, int64_t first, int64_t rows) const = 0;

  /// What a model is judged by, in so many parts.
  virtual int64_t evaluation_batches() const = 0;
  virtual Batch evaluation_batch(int64_t index) const = 0;

  /// Of a classification; else empty.
  virtual const data::Labels& labels() const = 0;

  /// Of the file, or of all files.
  virtual int64_t bytes() const = 0;
  /// 64 bits that stand for their contents, in hexadecimal digits.
  virtual std::string fingerprint() const = 0;

  /// What its user should know of how it was read, a line; empty: nothing.
  virtual std::string notice() const { return {}; }
};

}  // namespace remat::cli
