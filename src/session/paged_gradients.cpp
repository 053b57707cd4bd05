#include <remat/paged_gradients.h>

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <remat/error.h>
#include <remat/paged_optimizer.h>
#include <remat/support/number_text.h>

#include "session/gradient_hook.h"
#include "tiers/parameter_update.h"

namespace remat {
namespace {

constexpr const char* kWhere = "[paged gradients]";

}  // namespace

struct PagedGradients::Impl {
  /// What of a parameter's gradient is in the file.
  struct Stored {
    std::shared_ptr<PagedState> place;
    at::Tensor norm;    ///< of what was written
    at::Tensor factor;  ///< which it is to be multiplied by; undefined: none
  };

  Impl(torch::optim::Optimizer& of, const std::string& directory, int64_t limit_bytes)
      : optimizer(of), pager(directory, limit_bytes) {}

  torch::optim::Optimizer& optimizer;
  StatePager pager;
  std::unordered_map<const at::TensorImpl*, Stored> all;
  GradientHooks hooks;

  /// The parameter's, if it is in the file.
  Stored* find(const at::Tensor& parameter) {
    const auto found = all.find(parameter.unsafeGetTensorImpl());
    return found == all.end() || found->second.place->empty() ? nullptr : &found->second;
  }

  at::Tensor take(const at::Tensor& parameter, Stored& stored) const {
    const auto fetched = stored.place->fetch();
    if (fetched.size() != 1) {
      throw Error(std::string(kWhere) + " the gradient of a parameter of shape " +
                  support::list_text(parameter.sizes()) + " is lost; call zero(), and begin the step again");
    }
    if (stored.factor.defined()) fetched[0].mul_(stored.factor);
    return fetched[0];
  }
  /// Begins to write `gradient`, which takes the place of what was there.
  void put(const at::Tensor& parameter, Stored& stored, at::Tensor gradient) {
    stored.place->store({});
    stored.factor.reset();
    parameter.mutable_grad() = gradient;  // where it is, should there be no memory for its norm
    stored.norm = gradient.norm(2.0);
    parameter.mutable_grad().reset();
    std::vector<at::Tensor> tensors;
    tensors.push_back(std::move(gradient));
    stored.place->store(std::move(tensors));
    warn();
  }

  void gradient_is_complete(const at::Tensor& parameter) {
    if (c10::GradMode::is_enabled()) {
      throw Error(std::string(kWhere) + " backward with create_graph needs gradients as they are; leave it out");
    }
    at::Tensor gradient = parameter.grad();
    const bool is_worth_it = PagedState::can_store(gradient) && gradient.nbytes() >= PagedOptimizer::kSmallestBytes;
    Stored* const before = find(parameter);
    if (!is_worth_it && before == nullptr) return;
    if (before != nullptr) {  // as autograd adds: to what is there
      at::Tensor sum = take(parameter, *before);
      sum.add_(gradient);
      gradient = std::move(sum);
    }
    Stored& stored = all[parameter.unsafeGetTensorImpl()];
    if (!stored.place) stored.place = pager.add();
    put(parameter, stored, std::move(gradient));
  }

  void warn() {
    if (const auto reason = pager.take_failure()) {
      TORCH_WARN(
          kWhere, " ", *reason,
          "; the gradient stays in memory, and later writes are tried again: make room there, or raise limit_bytes");
    }
  }
};

PagedGradients::PagedGradients(torch::optim::Optimizer& optimizer, const std::string& directory, int64_t limit_bytes)
    : impl_(std::make_shared<Impl>(optimizer, directory, limit_bytes)) {
  check_updates_one_by_one(optimizer, kWhere);
  for_each_parameter(optimizer, [](const at::Tensor& parameter, size_t) {
    check_on_host(parameter, kWhere, "gradients in a file are");
  });
  for_each_parameter(optimizer, [this](const at::Tensor& parameter, size_t) {
    if (!parameter.requires_grad()) return;
    impl_->hooks.add(parameter, kWhere, [weak = std::weak_ptr(impl_)](const at::Tensor& complete) {
      if (const auto ours = weak.lock()) ours->gradient_is_complete(complete);
    });
  });
}

PagedGradients::~PagedGradients() { impl_->hooks.remove(); }

double PagedGradients::clip_norm(double max_norm) {
  const c10::NoGradGuard no_gradients;
  std::vector<at::Tensor> norms;
  for_each_parameter(impl_->optimizer, [&](const at::Tensor& parameter, size_t) {
    auto* const stored = impl_->find(parameter);
    if (stored != nullptr && stored->factor.defined()) impl_->put(parameter, *stored, impl_->take(parameter, *stored));
    if (stored != nullptr) norms.push_back(stored->norm);
    if (stored == nullptr && parameter.grad().defined()) norms.push_back(parameter.grad().norm(2.0));
  });
  if (norms.empty()) return 0;
  const at::Tensor norm = norms.size() == 1 ? norms[0] : at::stack(norms).norm(2.0);
  const at::Tensor factor = at::clamp(max_norm / (norm + 1e-6), std::nullopt, 1.0);
  for_each_parameter(impl_->optimizer, [&](const at::Tensor& parameter, size_t) {
    if (auto* const stored = impl_->find(parameter)) {
      stored->factor = factor;
    } else if (parameter.grad().defined()) {
      parameter.mutable_grad().mul_(factor);
    }
  });
  return norm.item<double>();
}

void PagedGradients::step() {
  auto& optimizer = impl_->optimizer;
  PagedOptimizer* const paged = PagedOptimizer::of(optimizer);
  const c10::NoGradGuard no_gradients;
  for_each_parameter(optimizer, [&](const at::Tensor& parameter, size_t group) {
    auto* const stored = impl_->find(parameter);
    if (stored != nullptr) {  // from here on it is where a plain one is, also if the update throws
      parameter.mutable_grad() = impl_->take(parameter, *stored);
      stored->place->store({});
      stored->factor.reset();
    }
    if (!parameter.grad().defined()) return;
    paged != nullptr ? paged->update(parameter, group) : update_in_parts(optimizer, group, parameter);
    parameter.mutable_grad().reset();
  });
  if (paged != nullptr) paged->end_step();
  impl_->pager.end_round();
}

void PagedGradients::zero() {
  for_each_parameter(impl_->optimizer, [this](const at::Tensor& parameter, size_t) {
    parameter.mutable_grad().reset();
    impl_->all.erase(parameter.unsafeGetTensorImpl());
  });
  impl_->pager.end_round();
}

PagingReport PagedGradients::report() const { return impl_->pager.report(); }

}  // namespace remat
