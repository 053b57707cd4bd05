#include <remat/paged_optimizer.h>

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <remat/error.h>
#include <remat/support/number_text.h>

#include "device/device.h"
#include "memory/fork.h"
#include "tiers/parameter_parts.h"
#include "tiers/parameter_update.h"
#include "util/mutex.h"

namespace remat {
namespace {

struct PagedOptimizers {
  Mutex mutex;
  std::unordered_map<const torch::optim::Optimizer*, PagedOptimizer*> all REMAT_GUARDED_BY(mutex);
};

PagedOptimizers& paged_optimizers() {
  static auto& all = never_destroyed<PagedOptimizers>();
  return all;
}

/// What of a parameter's state is in the file.
struct Pages {
  std::vector<size_t> which;  ///< of tensors_of()
  std::vector<Part> parts;
  std::vector<std::shared_ptr<PagedState>> states;  ///< of each part
};

void check_device(const at::Tensor& parameter) { check_on_host(parameter, "[paged]", "state in a file is"); }

}  // namespace

struct PagedOptimizer::Impl {
  Impl(torch::optim::Optimizer& of, std::string where, int64_t limit_bytes)
      : optimizer(of), directory(std::move(where)), pager(directory, limit_bytes) {}

  torch::optim::Optimizer& optimizer;
  const std::string directory;
  StatePager pager;
  std::unordered_map<void*, Pages> pages;  ///< by parameter, as the optimizer's state()

  /// Calls update(target) for the parameter or each part of it, with its state in memory as that of `target`.
  template <class Update>
  void in_parts(const at::Tensor& parameter, const Update& update) {
    auto& states = optimizer.state();
    void* const key = parameter.unsafeGetTensorImpl();
    auto& held = pages[key];
    const auto parts = parts_of(parameter);
    if (held.parts != parts) {
      if (!held.which.empty()) read_back(parameter, held);
      held = {{}, parts, {}};
      for (size_t i = 0; i < parts.size(); ++i) held.states.push_back(pager.add());
    }
    std::vector<size_t> which;
    std::unique_ptr<torch::optim::OptimizerParamState> after;
    const auto before = states.find(key);
    const bool has_state = before != states.end();
    const std::unique_ptr<torch::optim::OptimizerParamState> entry = has_state ? before->second->clone() : nullptr;
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor target = parts.size() == 1 ? parameter : part_of(parameter, parts[i]);
      void* const target_key = target.unsafeGetTensorImpl();
      const auto fetched = held.states[i]->fetch();
      if (fetched.size() != held.which.size()) {
        throw Error("[paged] state of a parameter of shape " + support::list_text(parameter.sizes()) +
                    " is lost; load model and optimizer from a checkpoint");
      }
      if (has_state) {
        auto state = entry->clone();
        const auto tensors = tensors_of(*state);
        for (auto* const tensor : tensors) {  // of the parameter, in memory still
          if (tensor->defined() && parts.size() > 1) *tensor = slice(tensor->reshape(-1), parts[i]);
        }
        for (size_t j = 0; j < fetched.size(); ++j) {  // what is defined was loaded since
          if (!tensors[held.which[j]]->defined()) *tensors[held.which[j]] = fetched[j];
        }
        states[target_key] = std::move(state);
      }
      try {
        update(target);
      } catch (...) {
        held.states[i]->store(fetched);
        if (parts.size() > 1) states.erase(target_key);
        if (has_state) states[key] = entry->clone();
        throw;
      }
      const auto made = states.find(target_key);
      if (made == states.end()) continue;
      after = std::move(made->second);
      states.erase(made);
      which = page_out(*after, target, parts.size() > 1, *held.states[i]);
    }
    held.which = which;
    if (after != nullptr) states[key] = std::move(after);
    warn();
  }

  /// Begins to write, and returns which tensors.
  static std::vector<size_t> page_out(torch::optim::OptimizerParamState& state, const at::Tensor& target, bool is_part,
                                      PagedState& into) {
    std::vector<size_t> which;
    std::vector<at::Tensor> written;
    const auto tensors = tensors_of(state);
    for (size_t i = 0; i < tensors.size(); ++i) {
      auto& tensor = *tensors[i];
      const bool is_worth_it = is_part ? tensor.defined() && tensor.numel() == target.numel()
                                       : tensor.defined() && tensor.nbytes() >= kSmallestBytes;
      if (!is_worth_it || !PagedState::can_store(tensor)) continue;
      which.push_back(i);
      written.push_back(std::exchange(tensor, {}));
    }
    into.store(std::move(written));
    return which;
  }

  void read_back(const at::Tensor& parameter, Pages& held) {
    const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (state == optimizer.state().end()) return;
    std::vector<at::Tensor> whole(held.which.size());  // complete, or none of it is the optimizer's
    for (size_t i = 0; i < held.parts.size(); ++i) {
      const auto read = held.states[i]->read();
      for (size_t j = 0; j < std::min(read.size(), whole.size()); ++j) {
        if (held.parts.size() == 1) {
          whole[j] = read[j];
          continue;
        }
        if (i == 0) whole[j] = at::empty(parameter.sizes(), read[j].options());
        slice(whole[j].view(-1), held.parts[i]).copy_(read[j]);
      }
    }
    const auto tensors = tensors_of(*state->second);
    for (size_t j = 0; j < whole.size(); ++j) {  // what is defined was loaded since
      if (!tensors[held.which[j]]->defined()) *tensors[held.which[j]] = std::move(whole[j]);
    }
    held = {};
  }
  void read_all_back() {
    for_each_parameter(optimizer, [this](const at::Tensor& parameter, size_t) {
      const auto held = pages.find(parameter.unsafeGetTensorImpl());
      if (held != pages.end()) read_back(parameter, held->second);
    });
    pages.clear();
  }
  void page_all_out() {
    for_each_parameter(optimizer,
                       [this](const at::Tensor& parameter, size_t) { in_parts(parameter, [](const at::Tensor&) {}); });
    end_step();
  }
  void end_step() {
    pager.end_round();
    warn();
  }
  void warn() {
    if (const auto reason = pager.take_failure()) {
      TORCH_WARN(
          "[paged] ", *reason,
          "; the state stays in memory, and later writes are tried again: make room there, or raise limit_bytes");
    }
  }
};

PagedOptimizer::PagedOptimizer(torch::optim::Optimizer& optimizer, const std::string& directory, int64_t limit_bytes)
    : impl_(std::make_unique<Impl>(optimizer, directory, limit_bytes)) {
  check_updates_one_by_one(optimizer, "[paged]");
  for_each_parameter(impl_->optimizer, [](const at::Tensor& parameter, size_t) { check_device(parameter); });
  {
    const MutexLock lock(paged_optimizers().mutex);
    if (!paged_optimizers().all.emplace(&optimizer, this).second) {
      throw Error("[paged] the state of this optimizer is in a file already; destroy its other PagedOptimizer before");
    }
  }
  try {
    impl_->page_all_out();
  } catch (...) {
    leave();
    throw;
  }
}

PagedOptimizer::~PagedOptimizer() { leave(); }

void PagedOptimizer::leave() noexcept {
  {
    const MutexLock lock(paged_optimizers().mutex);
    paged_optimizers().all.erase(&impl_->optimizer);
  }
  for_each_parameter(impl_->optimizer, [this](const at::Tensor& parameter, size_t) {
    const auto held = impl_->pages.find(parameter.unsafeGetTensorImpl());
    if (held == impl_->pages.end()) return;
    try {
      impl_->read_back(parameter, held->second);
    } catch (const std::exception& error) {  // of this parameter alone
      impl_->optimizer.state().erase(parameter.unsafeGetTensorImpl());
      TORCH_WARN(error.what());
    }
  });
}

at::Tensor PagedOptimizer::step(const std::function<at::Tensor()>& closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for_each_parameter(impl_->optimizer, [this](const at::Tensor& parameter, size_t group) {
    if (parameter.grad().defined()) update(parameter, group);
  });
  end_step();
  return loss;
}

void PagedOptimizer::update(const at::Tensor& parameter, size_t group) {
  check_device(parameter);  // its group may have been added later
  if (parameter.grad().layout() != at::kStrided) {
    throw Error("[paged] a parameter of shape " + support::list_text(parameter.sizes()) +
                " has a sparse gradient; use dense gradients, or the optimizer as it is");
  }
  impl_->in_parts(parameter, [&](const at::Tensor& target) { update_alone(impl_->optimizer, group, target); });
}

void PagedOptimizer::end_step() { impl_->end_step(); }

void PagedOptimizer::with_state(const std::function<void()>& function) {
  impl_->read_all_back();
  try {
    function();
  } catch (...) {
    impl_->page_all_out();
    throw;
  }
  impl_->page_all_out();
}

const std::string& PagedOptimizer::directory() const { return impl_->directory; }
PagingReport PagedOptimizer::report() const { return impl_->pager.report(); }

PagedOptimizer* PagedOptimizer::of(const torch::optim::Optimizer& optimizer) {
  const MutexLock lock(paged_optimizers().mutex);
  const auto found = paged_optimizers().all.find(&optimizer);
  return found == paged_optimizers().all.end() ? nullptr : found->second;
}

}  // namespace remat
