// cli/labelled_text_data.h -- labelled texts as training examples: all of them once in each epoch, in an order that the
// seed decides, as tokens that are padded to the longest text of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/training_data.h"
#include "data/batches.h"

namespace remat::cli {

struct LabelledTokens {
  std::vector<std::vector<int64_t>> texts;
  std::vector<int64_t> classes;  ///< of each text
  int64_t padding = 0;           ///< the token that stands where there is no text
  bool pads_left = false;        ///< texts end where the longest ends, else they begin together
};

class LabelledTextData final : public TrainingData {
 public:
  /// `contents`: of the file. `batch`: texts in the batch of a step.
  LabelledTextData(LabelledTokens tokens, data::Labels labels, const std::string& contents, int64_t batch,
                   uint64_t seed);

  /// Inputs are (rows, 3, longest): token numbers, their types, which are 0, and the mask. They are as long as the
  /// longest text of the whole batch, so that processes which share a batch take the same step.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// All texts, in the order of the file.
  int64_t evaluation_batches() const override;
  Batch evaluation_batch(int64_t index) const override;

  const data::Labels& labels() const override { return labels_; }
  int64_t bytes() const override { return bytes_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  /// Texts `which[first]` to `which[first + rows]`, as long as the longest of `which`.
  Batch make_batch(const std::vector<int64_t>& which, int64_t first, int64_t rows) const;

  LabelledTokens tokens_;
  data::Labels labels_;
  mutable data::Batches batches_;
  int64_t bytes_;
  std::string fingerprint_;
};

}  // namespace remat::cli
