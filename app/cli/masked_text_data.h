// cli/masked_text_data.h -- a text from which a model learns to tell the tokens that are hidden from it (Devlin et al.
// 2019, section 3.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/text_data.h"

namespace remat::cli {

/// The tokens that a masked text is made of.
struct MaskedVocabulary {
  int64_t first = 0;  ///< of every example, BERT's [CLS]
  int64_t last = 0;   ///< of every example, [SEP]
  int64_t mask = 0;   ///< stands where a token is hidden
  int64_t size = 0;   ///< token numbers are below it
};

/// An example is a window of the text between `first` and `last`. 15 % of its tokens, rounded, and at least one, are to
/// be predicted: of these 80 % are hidden, 10 % are another token of the vocabulary, 10 % are left as they are, each
/// decided by itself. Which ones depends on seed, step and row alone.
///
/// Every example has as many predictions as any other. So the mean over the predictions of a batch is the mean over its
/// micro-batches and processes too.
class MaskedTextData final : public TrainingData {
 public:
  /// `seq`: tokens of an example, those around the window included; 3 or more. Throws Error as TextData does.
  MaskedTextData(const std::string& path, int64_t seq, uint64_t seed, const MaskedVocabulary& vocabulary,
                 const Encode& encode);

  /// Inputs are (rows, 3, seq): token numbers, their types, which are 0, and the mask, which is 1. Targets are (rows,
  /// seq): the token where one is to be predicted, elsewhere kNoTarget.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// Windows as TextData's, with the same tokens hidden in every evaluation.
  int64_t evaluation_batches() const override { return text_.evaluation_batches(); }
  Batch evaluation_batch(int64_t index) const override { return training_batch(/*step=*/0, index, /*rows=*/1); }
  const data::Labels& labels() const override { return text_.labels(); }

  int64_t bytes() const override { return text_.bytes(); }
  std::string fingerprint() const override { return text_.fingerprint(); }

 private:
  TextData text_;
  int64_t window_;  ///< tokens of the text in an example
  uint64_t seed_;
  MaskedVocabulary vocabulary_;
};

}  // namespace remat::cli
