#include "cli/head_loss.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <remat/linear_cross_entropy.h>

#include "cli/device.h"
#include "cli/table.h"
#include "cli/training_data.h"

namespace remat::cli {
namespace {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.flatten(0, -2), target.reshape({-1}), {}, at::Reduction::Mean, kNoTarget);
}

/// Of the logits that the product gives; the loss may hold larger ones.
int64_t bytes_of_logits(const zoo::HeadInput& head, int64_t tokens) {
  const auto type =
      at::autocast::is_autocast_enabled(kDevice) ? at::autocast::get_autocast_dtype(kDevice) : head.input.scalar_type();
  return tokens * head.weight.size(0) * static_cast<int64_t>(c10::elementSize(type));
}

}  // namespace

at::Tensor HeadLoss::operator()(zoo::Model& model, const at::Tensor& input, const at::Tensor& target) {
  return of_model(model, input, target, [&] { return cross_entropy(model.forward(input), target); });
}

at::Tensor HeadLoss::operator()(const zoo::Task& task) {
  return of_model(*task.model, task.input, task.target, [&] { return task.loss(); });
}

/// `without_head`: the loss where the model ends in no head, or that is not to be looked for.
at::Tensor HeadLoss::of_model(zoo::Model& model, const at::Tensor& input, const at::Tensor& target,
                              const std::function<at::Tensor()>& without_head) {
  choice_.reset();
  logits_bytes_ = 0;
  if (how_ == kHeadWhole) return without_head();
  if (const auto head = model.forward_to_head(input)) return of_head(*head, target.reshape({-1}));
  if (how_ == kHeadTiles) choice_ = TileChoice{0, 0, "the model ends in no head, or changes what it gives"};
  return without_head();
}

at::Tensor HeadLoss::of_head(const zoo::HeadInput& head, const at::Tensor& target) {
  const int64_t tokens = target.size(0);
  const auto whole = [&](const std::string& reason) {
    choice_ = TileChoice{0, 0, reason};
    return cross_entropy(at::linear(head.input, head.weight, head.bias), target);
  };
  if (tokens < kFewestTiledTokens) {
    return whole(std::to_string(tokens) + " tokens are fewer than two tiles, " + std::to_string(kFewestTiledTokens));
  }
  if (how_ == kHeadAuto && bytes_of_logits(head, tokens) < kLargeLogitsBytes) {
    return whole("logits are smaller than " + std::to_string(kLargeLogitsBytes >> 20) + " MiB");
  }
  logits_bytes_ = tokens * head.weight.size(0) * static_cast<int64_t>(sizeof(float));  // as the loss holds them
  if (trial_ && !trial_->wants_tiles(logits_bytes_)) {
    return whole(trial_->is_over() ? "the shortest step took " + format_seconds(trial_->seconds_whole()) +
                                         ", in tiles " + format_seconds(trial_->seconds_in_tiles())
                                   : "the budget has room, and steps are compared");
  }
  LinearCrossEntropyOptions options;
  options.linear_bias = head.bias;
  options.ignore_index = kNoTarget;
  at::Tensor loss = linear_cross_entropy(head.input.flatten(0, -2), head.weight, target, options);
  choice_ = last_tile_choice();
  return loss;
}

bool HeadLoss::may_compare(const std::optional<Budget>& budget) {
  return budget && (budget->kind() == Budget::Kind::kBytes || budget->kind() == Budget::Kind::kDeviceLimit);
}

void HeadLoss::note(const StepReport& report, const Session& session) {
  if (!trial_ || logits_bytes_ == 0) return;
  trial_->note({.tiles = !choice_->is_whole(),
                .logits_bytes = logits_bytes_,
                .budget_bytes = report.budget_bytes,
                .seconds = report.step_seconds - report.planning_seconds},
               [&] { return session.min_budget_bytes().value_or(report.budget_bytes); });
}

std::string head_text(const TileChoice& choice) {
  return (choice.is_whole() ? "whole" : "tiles of " + std::to_string(choice.rows) + " tokens") + ": " + choice.reason;
}

nlohmann::json head_json(const TileChoice& choice) {
  return {{"rows", choice.rows}, {"columns", choice.columns}, {"reason", choice.reason}};
}

TileChoice head_from_json(const nlohmann::json& json) {
  return {json.at("rows"), json.at("columns"), json.at("reason")};
}

}  // namespace remat::cli
