#include <remat/tiled_mlp.h>

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <remat/error.h>

#include "pytorch/raise.h"
#include "tiles/choices.h"
#include "tiles/differentiable.h"
#include "tiles/mlp.h"
#include "tiles/mlp_trial.h"
#include "tiles/samples.h"

namespace remat {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using namespace tiles;  // NOLINT(google-build-using-namespace): of this library, in one file

/// What a TiledMlp knows beside its tensors.
struct MlpSettings final : torch::CustomClassHolder {
  MlpParts<bool> needs = {};
  MlpTiles tiles;
  Activation activation = Activation::kGelu;
  Circumstances forward;  ///< of its numbers, which backward computes again
};

class TiledMlp : public torch::autograd::Function<TiledMlp> {
 public:
  using Optional = const std::optional<at::Tensor>&;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& up, Optional up_bias,
                            Optional gate, Optional gate_bias, const at::Tensor& down, Optional down_bias,
                            Optional /*input_of_gate*/, const c10::intrusive_ptr<MlpSettings>& settings) {
    const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
    const at::Tensor undefined;
    const Mlp mlp{{input, up, up_bias.value_or(undefined), gate.value_or(undefined), gate_bias.value_or(undefined),
                   down, down_bias.value_or(undefined)},
                  settings->activation};
    context->save_for_backward({mlp.parts.begin(), mlp.parts.end()});
    context->saved_data["settings"] = c10::IValue::make_capsule(settings);
    return tiles::forward(mlp, settings->tiles.rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto settings = c10::static_intrusive_pointer_cast<MlpSettings>(context->saved_data["settings"].toCapsule());
    check_backward("tiled_mlp", saved[kInput], gradients, settings->forward);
    const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
    Mlp mlp{{}, settings->activation};
    std::ranges::copy(saved, mlp.parts.begin());
    // The trial had a gradient that is laid out row by row: products with another may be computed in another way.
    const bool was_tried = gradients[0].is_contiguous() && misalignment(gradients[0]) == 0;
    const MlpTiles as_a_whole{mlp.tokens(), mlp.tokens(), {}};
    MlpParts<bool> needs = settings->needs;  // of which this pass may ask for some alone
    size_t argument = 0;
    for (size_t part = 0; part < kMlpParts; ++part) {
      if (!mlp.parts[part].defined()) continue;  // and no argument for autograd
      if (part != kInput) needs[part] = needs[part] && context->needs_input_grad(argument);
      ++argument;
    }
    needs[kInput] =
        needs[kInput] && (context->needs_input_grad(0) ||
                          (mlp.is_gated() && context->needs_input_grad(argument)));  // of the gate, the last
    const MlpGradients result = tiles::backward(mlp, gradients[0], needs, was_tried ? settings->tiles : as_a_whole);
    variable_list of_arguments(result.parts.begin(), result.parts.end());
    of_arguments.push_back(result.input_of_gate);
    of_arguments.emplace_back();  // the settings
    return of_arguments;
  }
};

at::Tensor whole(const at::Tensor& input, const at::Tensor& up, const at::Tensor& down, const TiledMlpOptions& options,
                 std::string reason) {
  set_last_choice({0, 0, std::move(reason)});
  at::Tensor units;
  if (options.gate.defined()) {  // the gate first: autograd adds up gradients in the reverse order
    units = activate(at::linear(input, options.gate, options.gate_bias), options.activation);
    units = units * at::linear(input, up, options.up_bias);
  } else {
    units = activate(at::linear(input, up, options.up_bias), options.activation);
  }
  if (options.dropout != 0) units = at::dropout(units, options.dropout, /*train=*/true);
  return at::linear(units, down, options.down_bias);
}

/// Why the arguments are not for tiles; empty where they are.
std::string why_whole(const Mlp& mlp, const TiledMlpOptions& options) {
  for (const at::Tensor& part : mlp.parts) {
    if (part.defined() && !is_ordinary(part)) return "a tensor is not a plain one on the CPU";
    if (part.defined() && !part.is_contiguous()) return "a tensor is not contiguous";
    if (part.defined() && !at::isFloatingType(part.scalar_type())) return "a tensor is not of floating-point numbers";
    if (part.defined() && part.numel() == 0) return "there is nothing to compute";
  }
  if (options.dropout != 0) return "dropout draws the numbers of a tensor in one go";
  const at::Tensor &input = mlp[kInput], &up = mlp[kUp], &down = mlp[kDown], &gate = mlp[kGate];
  const auto fits = [](const at::Tensor& bias, int64_t size) {
    return !bias.defined() || bias.sizes() == at::IntArrayRef{size};
  };
  const bool fit = input.dim() >= 2 && up.dim() == 2 && down.dim() == 2 && input.size(-1) == up.size(1) &&
                   down.size(1) == up.size(0) && (!gate.defined() || gate.sizes() == up.sizes()) &&
                   fits(mlp[kUpBias], up.size(0)) && fits(mlp[kGateBias], up.size(0)) &&
                   fits(mlp[kDownBias], down.size(0));
  return fit ? std::string() : "the arguments do not fit together";
}

}  // namespace

at::Tensor tiled_mlp(const at::Tensor& input, const at::Tensor& up, const at::Tensor& down,
                     const TiledMlpOptions& options) {
  if (options.gate_bias.defined() && !options.gate.defined()) {
    raise(Error("[tiled_mlp] there is a bias of a gate and no gate; give both, or neither"));
  }
  Mlp mlp{{input, up, options.up_bias, options.gate, options.gate_bias, down, options.down_bias}, options.activation};
  if (std::string reason = why_whole(mlp, options); !reason.empty()) {
    return whole(input, up, down, options, std::move(reason));
  }
  const auto settings = c10::make_intrusive<MlpSettings>();
  settings->activation = options.activation;
  settings->forward = circumstances();
  const at::ScalarType type = is_autocast(input) ? autocast_type(input) : input.scalar_type();
  const auto rows_of_input = [&] { return as_autocast(input, type).reshape({-1, input.size(-1)}); };
  // Each layer casts its input, as in plain, and that of the gate first: its gradient comes last.
  const std::optional<at::Tensor> input_of_gate =
      options.gate.defined() ? std::optional(rows_of_input()) : std::nullopt;
  mlp.parts[kInput] = rows_of_input();
  for (size_t part = 0; part < kMlpParts; ++part) {
    at::Tensor& tensor = mlp.parts[part];
    if (part != kInput) tensor = as_autocast(tensor, type);
    if (tensor.defined() && tensor.scalar_type() != type) {
      return whole(input, up, down, options, "the types of tensors do not fit together");
    }
    settings->needs[part] = tensor.defined() && tensor.requires_grad() && at::GradMode::is_enabled();
  }
  Mlp detached = mlp;
  for (at::Tensor& part : detached.parts) {
    if (part.defined()) part = part.detach();
  }
  const MlpChoice choice = choose_tiles(detached, settings->needs, options.whole_trial);
  if (choice.choice.is_whole()) return whole(input, up, down, options, choice.choice.reason);
  settings->tiles = choice.tiles;
  set_last_choice(choice.choice);

  const auto optional = [&](MlpPart part) { return mlp[part].defined() ? std::optional(mlp[part]) : std::nullopt; };
  const at::Tensor result =
      TiledMlp::apply(mlp[kInput], mlp[kUp], optional(kUpBias), optional(kGate), optional(kGateBias), mlp[kDown],
                      optional(kDownBias), input_of_gate, settings);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = down.size(0);
  return result.view(sizes);
}

}  // namespace remat
