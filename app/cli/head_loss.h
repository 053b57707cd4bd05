// cli/head_loss.h -- a forward pass and its cross-entropy, for which logits of a large vocabulary are never whole.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <remat/tiles.h>

#include "zoo/model.h"
#include "zoo/task.h"

namespace remat::cli {

// Of --head.
constexpr const char* kHeadAuto = "auto";    // in tiles where logits are larger than 16 MiB
constexpr const char* kHeadTiles = "tiles";  // wherever there are tiles with the bits of the whole
constexpr const char* kHeadWhole = "whole";  // as without remat

class HeadLoss {
 public:
  /// `how`: one of those above.
  explicit HeadLoss(std::string how) : how_(std::move(how)) {}

  /// The mean over all predictions but those whose target is kNoTarget. Models that end in no head
  /// (zoo::Model::forward_to_head()) give their results, whose last dimension is that of classes. The same bits
  /// whatever `how` is.
  at::Tensor operator()(zoo::Model& model, const at::Tensor& input, const at::Tensor& target);
  /// That of a task of the zoo, whose own criterion is taken where its model ends in no head.
  at::Tensor operator()(const zoo::Task& task);

  /// What was done in the last call. Nothing where the model ends in no head, and with kHeadWhole.
  const std::optional<TileChoice>& choice() const { return choice_; }

 private:
  at::Tensor of_head(const zoo::HeadInput& head, const at::Tensor& target);

  std::string how_;
  std::optional<TileChoice> choice_;
};

/// "tiles of 192 tokens: a trial with all classes gave the bits of the whole".
std::string head_text(const TileChoice& choice);

}  // namespace remat::cli
