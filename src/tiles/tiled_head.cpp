#include <remat/tiled_head.h>

#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "pytorch/known_modes.h"
#include "pytorch/raise.h"
#include "tiles/choices.h"
#include "tiles/differentiable.h"
#include "tiles/head.h"
#include "tiles/head_trial.h"

namespace remat::extension {

using tiles::Head;

struct TiledHead::Impl {
  Head head;
  tiles::HeadNeeds needs;
  tiles::HeadChoice choice;
  tiles::Circumstances made_in;
  int64_t version;  ///< of the head's tensors, added up
  tiles::HeadValues made;
};

namespace {

int64_t version_of(const Head& head) {
  int64_t version = 0;
  for (const at::Tensor& tensor : {head.input, head.weight, head.bias}) {
    if (tensor.defined() && !tensor.is_inference()) version += int64_t(tensor._version());
  }
  return version;
}

std::string why_whole(const Head& head) {
  for (const at::Tensor& tensor : {head.input, head.weight, head.bias, head.classes}) {
    if (tensor.defined() && !tiles::is_ordinary(tensor)) return "a tensor is not a plain one on the CPU";
  }
  const at::Tensor &input = head.input, &weight = head.weight, &bias = head.bias, &classes = head.classes;
  const bool fit = input.dim() == 2 && weight.dim() == 2 && input.size(1) == weight.size(1) && input.numel() > 0 &&
                   weight.numel() > 0 && at::isFloatingType(input.scalar_type()) &&
                   weight.scalar_type() == input.scalar_type() && classes.scalar_type() == at::kLong &&
                   classes.sizes() == at::IntArrayRef{input.size(0)} &&
                   (!bias.defined() || (bias.scalar_type() == input.scalar_type() && bias.is_contiguous() &&
                                        bias.sizes() == at::IntArrayRef{weight.size(0)}));
  if (!fit) return "the arguments do not fit together";
  if (input.stride(1) != 1 || input.stride(0) < input.size(1) || !weight.is_contiguous()) {
    return "the input or the weight is not laid out row by row";
  }
  const at::Tensor wrong = (classes < 0).logical_or_(classes >= head.size());
  return wrong.any().item<bool>() ? "a target is no class" : std::string();
}

}  // namespace

TiledHead::TiledHead(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::optional<TiledHead> TiledHead::make(const HeadTensors& head, const at::Tensor& classes, at::ScalarType loss_type,
                                         const NeededGradients& needs) {
  const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
  const at::NoGradGuard no_grad;
  const auto impl = std::make_shared<Impl>();
  impl->head = {
      head.input.detach(), head.weight.detach(), head.bias.defined() ? head.bias.detach() : at::Tensor(), classes, {},
      loss_type,           /*has_sums=*/false};
  impl->needs = {needs.input, needs.weight, needs.bias};
  impl->made_in = tiles::circumstances();
  if (std::string reason = why_whole(impl->head); !reason.empty()) {
    tiles::set_last_choice({0, 0, std::move(reason)});
    return std::nullopt;
  }
  impl->choice = tiles::choose_tiles(impl->head, impl->needs, /*whole_trial=*/false);
  tiles::set_last_choice(impl->choice.choice);
  if (impl->choice.choice.is_whole()) return std::nullopt;
  impl->version = version_of(impl->head);
  impl->made = tiles::forward(impl->head, impl->choice.tiles);
  return TiledHead(impl);
}

const at::Tensor& TiledHead::log_probabilities() const { return impl_->made.values.picked; }

const TileChoice& TiledHead::choice() const { return impl_->choice.choice; }

HeadTensors TiledHead::gradients(const at::Tensor& of_log_probabilities) const {
  const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
  const at::NoGradGuard no_grad;
  if (version_of(impl_->head) != impl_->version) {
    raise(
        Error("[head] the head's input or its weights were written to between forward and backward; write to them "
              "after backward()"));
  }
  tiles::check_backward("head", impl_->head.input, of_log_probabilities, impl_->made_in);
  tiles::HeadGradients found = tiles::backward(impl_->head, {of_log_probabilities, {}}, impl_->made.normalisers,
                                               impl_->needs, impl_->choice.tiles);
  return {std::move(found.input), std::move(found.weight), std::move(found.bias)};
}

std::vector<int64_t> product_circumstances() { return tiles::circumstances(); }

KnownMode::KnownMode() { ++known_modes(); }

KnownMode::~KnownMode() { end(); }

void KnownMode::end() {
  if (open_) --known_modes();
  open_ = false;
}

}  // namespace remat::extension
