// cli/chat_data.h -- conversations as training examples, of which answers alone are learned: all of them once in each
// epoch, in an order that the seed decides, as tokens that are padded to the longest of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/conversations.h"
#include "cli/training_data.h"
#include "data/batches.h"

namespace remat::cli {

class ChatData final : public TrainingData {
 public:
  /// `bytes`: of the file. `batch`: conversations in the batch of a step. There is at least one.
  ChatData(std::vector<chat::LearnedTokens> conversations, int64_t bytes, int64_t batch, uint64_t seed,
           std::string notice = {});

  /// Inputs and targets are (rows, longest - 1): tokens, and the token after each where that is learned, else
  /// kNoTarget. Conversations begin together. They are as long as the longest of the whole batch, so that processes
  /// which share a batch take the same step.
  Batch training_batch(int64_t step, int64_t first, int64_t rows) const override;
  /// All conversations, in the order of the file.
  int64_t evaluation_batches() const override { return batches_.count(); }
  Batch evaluation_batch(int64_t index) const override;

  const data::Labels& labels() const override;
  int64_t bytes() const override { return bytes_; }
  /// Of the tokens: another template or tokenizer makes other examples of the same file.
  std::string fingerprint() const override { return fingerprint_; }
  std::string notice() const override { return notice_; }

 private:
  Batch make_batch(const std::vector<int64_t>& which, int64_t first, int64_t rows) const;

  std::vector<chat::LearnedTokens> conversations_;
  mutable data::Batches batches_;
  int64_t bytes_;
  std::string fingerprint_, notice_;
};

}  // namespace remat::cli
