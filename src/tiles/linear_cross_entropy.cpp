#include <remat/linear_cross_entropy.h>

#include <array>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/nll_loss.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tiles/choices.h"
#include "tiles/differentiable.h"
#include "tiles/head.h"
#include "tiles/head_trial.h"

namespace remat {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using tiles::Head;
using tiles::HeadNeeds;
using tiles::HeadTiles;
using tiles::TokenValues;

/// Targets that are ignored, where targets are told from each other no more.
constexpr int64_t kIgnored = -100;

/// What a TiledHead knows beside its tensors.
struct Settings final : torch::CustomClassHolder {
  HeadNeeds needs;
  HeadTiles tiles;
  at::ScalarType loss_type = at::kFloat;
  bool has_sums = false;
  tiles::Circumstances forward;  ///< of its numbers, which backward computes again

  Head head(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& classes,
            const at::Tensor& class_weight) const {
    return {input, weight, bias, classes, class_weight, loss_type, has_sums};
  }
};

/// The values of tokens, as autograd sees them.
class TiledHead : public torch::autograd::Function<TiledHead> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, const at::Tensor& classes,
                               const std::optional<at::Tensor>& class_weight,
                               const c10::intrusive_ptr<Settings>& settings) {
    const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
    const at::Tensor undefined;
    const Head head =
        settings->head(input, weight, bias.value_or(undefined), classes, class_weight.value_or(undefined));
    const auto [values, normalisers] = tiles::forward(head, settings->tiles);
    context->save_for_backward({head.input, head.weight, head.bias, head.classes, head.class_weight,
                                normalisers.largest, normalisers.log_sum});
    context->saved_data["settings"] = c10::IValue::make_capsule(settings);
    if (head.has_sums) return {values.picked, values.sums};
    return {values.picked};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto settings = c10::static_intrusive_pointer_cast<Settings>(context->saved_data["settings"].toCapsule());
    tiles::check_backward("linear_cross_entropy", saved[0], gradients, settings->forward);
    const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
    const Head head = settings->head(saved[0], saved[1], saved[2], saved[3], saved[4]);
    const TokenValues of_values{gradients[0], head.has_sums ? gradients[1] : at::Tensor()};
    // This pass may ask for some of them alone.
    const HeadNeeds needs{settings->needs.input && context->needs_input_grad(0),
                          settings->needs.weight && context->needs_input_grad(1),
                          settings->needs.bias && context->needs_input_grad(2)};
    tiles::HeadGradients result = tiles::backward(head, of_values, {saved[5], saved[6]}, needs, settings->tiles);
    return {result.input, result.weight, result.bias, {}, {}, {}};
  }
};

/// What at::cross_entropy_loss() makes of log-probabilities, of the values of tokens alone.
class Reduction {
 public:
  Reduction(const at::Tensor& target, const at::Tensor& weight, const LinearCrossEntropyOptions& options)
      : ignored_(target == options.ignore_index),
        classes_(target.masked_fill(ignored_, 0)),
        targets_(target.new_zeros(target.sizes()).masked_fill_(ignored_, kIgnored)),
        reduction_(options.reduction) {
    if (weight.defined()) weights_ = weight.gather(0, classes_).masked_fill_(ignored_, 0);
  }

  /// The target of each token; 0 where it is ignored.
  const at::Tensor& classes() const { return classes_; }

  /// at::nll_loss().
  at::Tensor of_picked(at::Tensor picked) const {
    if (!weights_.defined()) return nll_loss(picked, reduction_);
    picked = picked * weights_;
    if (reduction_ != at::Reduction::Mean) return nll_loss(picked, reduction_);
    return nll_loss(picked, at::Reduction::Sum) / nll_loss(-weights_, at::Reduction::Sum);
  }

  /// The part of label smoothing.
  at::Tensor of_sums(const at::Tensor& sums) const {
    const at::Tensor losses = (-sums).masked_fill(ignored_, 0);
    if (reduction_ == at::Reduction::None) return losses;
    if (reduction_ == at::Reduction::Sum) return losses.sum();
    const at::Tensor counted = ~ignored_;
    return losses.sum() / (weights_.defined() ? weights_.masked_select(counted).sum() : counted.sum());
  }

 private:
  at::Tensor nll_loss(const at::Tensor& picked, int64_t reduction) const {
    return at::nll_loss(picked.unsqueeze(1), targets_, {}, reduction, kIgnored);
  }

  const at::Tensor ignored_, classes_, targets_;
  at::Tensor weights_;  ///< of each token; 0 where it is ignored
  const int64_t reduction_;
};

at::Tensor whole(const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& target,
                 const LinearCrossEntropyOptions& options, std::string reason) {
  tiles::set_last_choice({0, 0, std::move(reason)});
  return at::cross_entropy_loss(at::linear(input, linear_weight, options.linear_bias), target, options.weight,
                                options.reduction, options.ignore_index, options.label_smoothing);
}

/// Why the arguments are not for tiles; empty where they are.
std::string why_whole(const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& target,
                      const LinearCrossEntropyOptions& options) {
  for (const at::Tensor& tensor : {input, linear_weight, target, options.linear_bias, options.weight}) {
    if (tensor.defined() && !tiles::is_ordinary(tensor)) return "a tensor is not a plain one on the CPU";
  }
  if (input.dim() != 2 || linear_weight.dim() != 2) return "the input is not (tokens, width)";
  if (at::isFloatingType(target.scalar_type())) return "targets are probabilities, as large as the logits";
  const int64_t tokens = input.size(0), classes = linear_weight.size(0);
  if (tokens == 0 || classes == 0 || input.size(1) == 0) return "there is nothing to compute";
  const bool fit = input.size(1) == linear_weight.size(1) && target.dim() == 1 && target.size(0) == tokens &&
                   (target.scalar_type() == at::kLong || target.scalar_type() == at::kByte) &&
                   (!options.linear_bias.defined() || options.linear_bias.sizes() == at::IntArrayRef{classes}) &&
                   (!options.weight.defined() || options.weight.sizes() == at::IntArrayRef{classes});
  if (!fit) return "the arguments do not fit together";
  if (input.stride(1) != 1 || input.stride(0) < input.size(1) || !linear_weight.is_contiguous()) {
    return "the input or the weight is not laid out row by row";
  }
  if (options.weight.defined() && options.weight.requires_grad()) return "the weights of classes are trained";
  if (options.label_smoothing < 0 || options.label_smoothing > 1) return "the arguments do not fit together";
  return {};
}

void check_targets(const at::Tensor& target, int64_t classes, int64_t ignore_index) {
  const at::Tensor wrong =
      target.masked_select((target < 0).logical_or_(target >= classes).logical_and_(target != ignore_index));
  if (wrong.numel() == 0) return;
  TORCH_CHECK_INDEX(false, "Target ", wrong[0].item<int64_t>(), " is out of bounds.");
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& target,
                                const LinearCrossEntropyOptions& options) {
  if (std::string reason = why_whole(input, linear_weight, target, options); !reason.empty()) {
    return whole(input, linear_weight, target, options, std::move(reason));
  }
  const at::ScalarType product_type = tiles::is_autocast(input) ? tiles::autocast_type(input) : input.scalar_type();
  const at::Tensor x = tiles::as_autocast(input, product_type), w = tiles::as_autocast(linear_weight, product_type),
                   bias = tiles::as_autocast(options.linear_bias, product_type),
                   weight = tiles::as_autocast(options.weight, at::kFloat);
  // Autocast leaves doubles as they are.
  const bool is_cast = tiles::is_autocast(input) && x.scalar_type() != at::kDouble;
  const at::ScalarType loss_type = is_cast ? at::kFloat : x.scalar_type();
  if (!at::isFloatingType(x.scalar_type()) || w.scalar_type() != x.scalar_type() ||
      (bias.defined() && bias.scalar_type() != x.scalar_type()) ||
      (weight.defined() && weight.scalar_type() != loss_type)) {
    return whole(input, linear_weight, target, options, "the types of tensors do not fit together");
  }
  const at::Tensor targets = target.to(at::kLong);
  check_targets(targets, w.size(0), options.ignore_index);

  const auto is_needed = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad() && at::GradMode::is_enabled();
  };
  const auto settings = c10::make_intrusive<Settings>();
  settings->needs = {is_needed(x), is_needed(w), is_needed(bias)};
  settings->loss_type = loss_type;
  settings->has_sums = options.label_smoothing > 0;
  settings->forward = tiles::circumstances();
  const Reduction reduction(targets, weight, options);
  const tiles::HeadChoice choice = tiles::choose_tiles(
      settings->head(x.detach(), w.detach(), bias.defined() ? bias.detach() : bias, reduction.classes(), weight),
      settings->needs, options.whole_trial);
  if (choice.choice.is_whole()) return whole(input, linear_weight, target, options, choice.choice.reason);
  settings->tiles = choice.tiles;
  tiles::set_last_choice(choice.choice);

  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const variable_list values = TiledHead::apply(x, w, optional(bias), reduction.classes(), optional(weight), settings);
  const at::Tensor loss = reduction.of_picked(values[0]);
  if (!settings->has_sums) return loss;
  return (1 - options.label_smoothing) * loss +
         reduction.of_sums(values[1]) * (options.label_smoothing / double(w.size(0)));
}

}  // namespace remat
