// cli/head_loss.h -- a forward pass and its cross-entropy, for which logits of a large vocabulary are never whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <remat/budget.h>
#include <remat/head_trial.h>
#include <remat/session.h>
#include <remat/tiles.h>

#include "cli/settings.h"
#include "zoo/model.h"
#include "zoo/task.h"

namespace remat::cli {

class HeadLoss {
 public:
  /// `how`: kHeadAuto, kHeadTiles or kHeadWhole. `compares`: with kHeadAuto logits are whole after all where the budget
  /// has room for them and steps are shorter so; then note() is to be called after each step.
  explicit HeadLoss(std::string how, bool compares = false) : how_(std::move(how)) {
    if (compares && how_ == kHeadAuto) trial_.emplace();
  }

  /// The mean over all predictions but those whose target is kNoTarget. Models that end in no head
  /// (zoo::Model::forward_to_head()) give their results, whose last dimension is that of classes. The same bits
  /// whatever `how` is.
  at::Tensor operator()(zoo::Model& model, const at::Tensor& input, const at::Tensor& target);
  /// That of a task of the zoo, whose own criterion is taken where its model ends in no head.
  at::Tensor operator()(const zoo::Task& task);

  /// Is the budget of a kind that whole logits may be compared under? A share would change with what steps take.
  static bool may_compare(const std::optional<Budget>& budget);

  /// What was done in the last call. Nothing with kHeadWhole, and with kHeadAuto where the model ends in no head.
  const std::optional<TileChoice>& choice() const { return choice_; }

  /// Learns what the step took that the last call was in.
  void note(const StepReport& report, const Session& session);

 private:
  at::Tensor of_model(zoo::Model& model, const at::Tensor& input, const at::Tensor& target,
                      const std::function<at::Tensor()>& without_head);
  at::Tensor of_head(const zoo::HeadInput& head, const at::Tensor& target);

  std::string how_;
  std::optional<TileChoice> choice_;
  std::optional<HeadTrial> trial_;
  int64_t logits_bytes_ = 0;  ///< of the last call, where they are large; else 0
};

/// "tiles of 192 tokens: a trial with all classes gave the bits of the whole".
std::string head_text(const TileChoice& choice);
nlohmann::json head_json(const TileChoice& choice);
TileChoice head_from_json(const nlohmann::json& json);

}  // namespace remat::cli
