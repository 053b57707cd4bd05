#include "cli/parameter_updates.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <torch/nn/utils/clip_grad.h>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/step_in_parts.h>

namespace remat::cli {
namespace {

/// Where `text` says, if there is room: while training runs a full disk is a warning, and what it is for stays in
/// memory, which is better known before. Each of `ranks` processes has a file, with `tensors` like each parameter.
Disk place_with_room(const std::string& what, const std::string& text, const std::vector<at::Tensor>& parameters,
                     int64_t tensors, int64_t ranks) {
  Disk place = place_of_state(text);
  int64_t bytes = 0;
  for (const auto& parameter : parameters) {
    if (parameter.nbytes() >= PagedOptimizer::kSmallestBytes)
      bytes += tensors * static_cast<int64_t>(parameter.nbytes());
  }
  const std::string takes = what + " " + format_exact_bytes(bytes);
  if (bytes > place.bytes) {
    throw Error(takes + ", and the file may have " + format_exact_bytes(place.bytes) +
                "; give more, or a directory alone");
  }
  std::error_code unknown;  // the directory may not be there, which is said when the file is made
  const auto left = std::filesystem::space(place.directory, unknown).available;
  if (unknown || left >= static_cast<uintmax_t>(ranks * bytes)) return place;
  throw Error(takes + (ranks > 1 ? " on each rank" : "") + ", and the disk of '" + place.directory + "' has " +
              format_exact_bytes(static_cast<int64_t>(left)) +
              " left; make room there, or name a directory of another disk");
}

}  // namespace

ParameterUpdates::ParameterUpdates(std::vector<at::Tensor> parameters, const TrainSettings& settings)
    : optimizer_(parameters, torch::optim::AdamWOptions(settings.lr).weight_decay(settings.weight_decay)),
      is_plain_(settings.plain) {
  if (!settings.page_optimizer.empty()) {
    const Disk place = place_with_room("[page-optimizer] the state of AdamW takes", settings.page_optimizer, parameters,
                                       2, settings.ranks);
    paged_.emplace(optimizer_, place.directory, place.bytes);
  }
  if (!settings.page_gradients.empty()) {
    const Disk place =
        place_with_room("[page-gradients] gradients take", settings.page_gradients, parameters, 1, settings.ranks);
    gradients_.emplace(optimizer_, place.directory, place.bytes);
  }
}

ParameterUpdates::~ParameterUpdates() {
  if (paged_) optimizer_.state().clear();  // else all of it would be read into memory, for nobody
}

void ParameterUpdates::begin_in_backward(int64_t accumulate,
                                         std::function<void(const at::Tensor& parameter)> before_update) {
  in_backward_.emplace(optimizer_, accumulate, std::move(before_update));
}

void ParameterUpdates::set_learning_rate(double rate) {
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate);
}

void ParameterUpdates::clip(double norm) {
  if (gradients_) {
    gradients_->clip_norm(norm);
  } else {
    torch::nn::utils::clip_grad_norm_(optimizer_.param_groups()[0].params(), norm);
  }
}

void ParameterUpdates::step() {
  is_updating_ = true;
  if (gradients_) {
    gradients_->step();
  } else if (paged_) {
    paged_->step();
  } else if (is_plain_) {
    optimizer_.step();
  } else {
    step_in_parts(optimizer_);
  }
  is_updating_ = false;
  optimizer_.zero_grad(/*set_to_none=*/true);
}

void ParameterUpdates::give_up_step() {
  if (in_backward_ && !is_between_steps()) in_backward_->reset();
  if (gradients_) gradients_->zero();
  optimizer_.zero_grad(/*set_to_none=*/true);
}

bool ParameterUpdates::is_between_steps() const {
  return is_updating_ || (in_backward_ && in_backward_->is_between_steps());
}

std::optional<PagingReport> ParameterUpdates::gradient_paging() const {
  return gradients_ ? std::optional(gradients_->report()) : std::nullopt;
}

std::optional<PagingReport> ParameterUpdates::paging() const {
  return paged_ ? std::optional(paged_->report()) : std::nullopt;
}

}  // namespace remat::cli
