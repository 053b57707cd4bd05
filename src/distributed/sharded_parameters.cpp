#include <cstring>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "device/device.h"

namespace remat {
namespace {

/// Gives the tensor's storage memory of its own again, and `contents` to it.
void fill(const at::Tensor& tensor, const void* contents) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(tensor.nbytes()));
  storage.set_nbytes(tensor.nbytes());
  std::memcpy(storage.mutable_data(), contents, tensor.nbytes());
}

void empty(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_nbytes(0);
  storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(0));
}

constexpr int kNoBackward = -1;  // as autograd numbers the absence of a backward pass

std::vector<at::Tensor> checked(std::vector<at::Tensor> parameters) {
  const auto refuse = [](size_t index, const std::string& what) {
    throw Error(
        "[sharding] parameter " + std::to_string(index) + " " + what +
        "; give leaves of one type, contiguous, on the CPU, each with its own storage, all trained or all frozen");
  };
  if (parameters.empty()) throw Error("[sharding] there are no parameters; give those of a block");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.defined()) refuse(i, "is undefined");
    if (!parameter.is_leaf()) refuse(i, "is no leaf");
    if (parameter.requires_grad() != parameters[0].requires_grad()) {
      refuse(i, parameter.requires_grad() ? "is trained, and the first is frozen" : "is frozen, and the first is not");
    }
    if (!device::is_host(parameter.device())) refuse(i, "is on " + parameter.device().str());
    if (!parameter.is_floating_point()) refuse(i, "is of integers");
    if (parameter.nbytes() > 0 && parameter.storage().nbytes() == 0)
      refuse(i, "has no contents: it is in shards already");
    if (parameter.scalar_type() != parameters[0].scalar_type()) refuse(i, "is of another type than the first");
    if (!parameter.is_contiguous() || parameter.nbytes() != parameter.storage().nbytes()) {
      refuse(i, "is not contiguous, or does not take all of its storage");
    }
    for (size_t k = 0; k < i; ++k) {
      if (parameter.is_alias_of(parameters[k])) refuse(i, "has the storage of parameter " + std::to_string(k));
    }
  }
  return parameters;
}

}  // namespace

struct ShardedParameters::Impl : std::enable_shared_from_this<Impl> {
  Impl(std::vector<at::Tensor> given, c10::intrusive_ptr<c10d::ProcessGroup> processes)
      : parameters(checked(std::move(given))), group(std::move(processes)), trained(parameters[0].requires_grad()) {
    const c10::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters) scalars += parameter.numel();
    at::Tensor all = flat([](const at::Tensor& parameter) { return parameter; });
    std::vector<at::Tensor> sent = {all};
    finish(group->broadcast(sent));
    shard = all.narrow(0, group->getRank() * shard_size(), shard_size()).clone().set_requires_grad(trained);
    for (const at::Tensor& parameter : parameters) empty(parameter);
  }

  int64_t padded() const { return shard_size() * group->getSize(); }
  int64_t shard_size() const { return (scalars + group->getSize() - 1) / group->getSize(); }

  /// What `of` gives of each parameter, one after another, and zeros at the end. An undefined tensor counts as zeros.
  template <class F>
  at::Tensor flat(const F& of) const {
    at::Tensor all = at::zeros({padded()}, parameters[0].options().requires_grad(false));
    char* next = static_cast<char*>(all.mutable_data_ptr());
    for (const at::Tensor& parameter : parameters) {
      if (const at::Tensor part = of(parameter); part.defined()) {
        std::memcpy(next, part.contiguous().const_data_ptr(), part.nbytes());
      }
      next += parameter.numel() * parameter.element_size();
    }
    return all;
  }

  void gather() {
    if (whole) return;
    const c10::NoGradGuard no_grad;
    at::Tensor all = at::empty({padded()}, shard.options().requires_grad(false));
    at::Tensor part = shard.detach();
    finish(group->all_gather_single(all, part));
    const char* next = static_cast<const char*>(all.const_data_ptr());
    for (const at::Tensor& parameter : parameters) {
      fill(parameter, next);
      next += parameter.nbytes();
    }
    whole = true;
  }

  void free() {
    if (!std::exchange(whole, false)) return;
    for (const at::Tensor& parameter : parameters) empty(parameter);
  }

  void free_unless_held() {
    if (!held) free();
  }

  /// Where what the shards are for has changed since they were made, or a pass has failed.
  void check_call() const {
    if (in_call) throw Error("[sharding] call() was called inside of call() of the same parameters; make it one call");
    if (in_backward && torch::autograd::get_current_graph_task_id() == kNoBackward) {
      throw Error("[sharding] a backward pass failed and left parameters whole; call free() before the next step");
    }
    for (size_t i = 0; i < parameters.size(); ++i) check_trained("parameter " + std::to_string(i), parameters[i]);
    check_trained("the shard", shard);
  }
  void check_trained(const std::string& name, const at::Tensor& tensor) const {
    if (tensor.requires_grad() == trained) return;
    throw Error("[sharding] " + name + (trained ? " was frozen" : " is trained") +
                " since the shards were made; make them anew, of parameters that are all trained or all frozen");
  }
  void check_result(const at::Tensor& y) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!held && y.is_alias_of(parameters[i])) {
        throw Error("[sharding] the result is a view of parameter " + std::to_string(i) +
                    ", which is freed when call() ends; give a copy of it");
      }
    }
  }

  /// The part's backward pass begins.
  void begin_backward() {
    if (c10::GradMode::is_enabled()) {
      throw Error(
          "[sharding] backward with create_graph needs parameters that stay whole; leave it out, or the shards");
    }
    gather();
    if (std::exchange(in_backward, true)) return;
    // Where the part's input needs no gradient, nothing else shows the end.
    torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this()] { self->end_backward(); });
  }

  void end_backward() {
    if (!std::exchange(in_backward, false)) return;
    const c10::NoGradGuard no_grad;
    free_unless_held();  // first: the gradients need as much once more
    if (!trained) return;
    at::Tensor all = flat([](const at::Tensor& parameter) { return parameter.grad(); });
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    // Gloo scatters what it has reduced in a copy of the whole, which its own thread frees some time later.
    std::vector<at::Tensor> reduced = {all};
    finish(group->allreduce(reduced));
    const at::Tensor mean = all.narrow(0, group->getRank() * shard_size(), shard_size()).clone();
    mean.div_(group->getSize());
    at::Tensor& gradient = shard.mutable_grad();
    if (gradient.defined()) {
      gradient.add_(mean);
    } else {
      gradient = mean;
    }
    if (calls <= 1) return gradient_is_complete();
    // Of several calls, as of layers that share their parameters, others may go backward later.
    if (std::exchange(completes_at_end, true)) return;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this()] { self->gradient_is_complete(); });
  }

  /// As autograd does when a leaf's gradient is complete: OptimizerInBackward waits for it.
  void gradient_is_complete() {
    calls = 0;
    completes_at_end = false;
    if (auto* const is_complete = torch::autograd::impl::post_acc_grad_hooks(shard).get()) (*is_complete)(shard);
  }

  std::vector<at::Tensor> parameters;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  bool trained;
  int64_t scalars = 0;
  at::Tensor shard;
  bool whole = false;
  bool held = false;  ///< whole until free() is called
  bool in_call = false;
  bool in_backward = false;       ///< or a pass has failed there
  int64_t calls = 0;              ///< that may go backward, since the gradient was complete
  bool completes_at_end = false;  ///< the gradient, when the backward pass ends
};

ShardedParameters::ShardedParameters(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : impl_(std::make_shared<Impl>(std::move(parameters), std::move(group))) {}
ShardedParameters::ShardedParameters(ShardedParameters&&) noexcept = default;
ShardedParameters& ShardedParameters::operator=(ShardedParameters&&) noexcept = default;
ShardedParameters::~ShardedParameters() = default;

ShardedParameters::Impl& ShardedParameters::impl() const {
  if (!impl_) throw Error("[sharding] these were moved from; use those that they were moved to");
  return *impl_;
}

const at::Tensor& ShardedParameters::shard() const { return impl().shard; }
void ShardedParameters::gather() {
  impl().gather();
  impl_->held = true;
}
void ShardedParameters::free() {
  impl().in_backward = impl_->held = impl_->completes_at_end = false;
  impl_->calls = 0;
  for (const at::Tensor& parameter : impl_->parameters) parameter.mutable_grad().reset();
  impl_->free();
}

at::Tensor ShardedParameters::call(const std::function<at::Tensor(at::Tensor)>& forward, at::Tensor x,
                                   bool until_backward) {
  impl().check_call();
  const auto impl = impl_;
  if (!impl->in_backward) impl->free_unless_held();  // a call that nothing went backward through may be long ago
  impl->gather();
  // Hooks of tensors run before the operator that made the tensor goes backward: the part's last one, and the last one
  // before the part. By then everything in between has run, since what accumulates gradients comes first.
  if (x.requires_grad()) {
    x = x.view_as(x);  // its own: the same tensor may go into another part
    x.register_hook([impl](const at::Tensor& /*gradient*/) { impl->end_backward(); });
  }
  at::Tensor y;
  impl->in_call = true;
  try {
    y = forward(std::move(x));
    impl->check_result(y);
  } catch (...) {
    impl->in_call = false;
    impl->free_unless_held();
    throw;
  }
  impl->in_call = false;
  if (y.requires_grad()) {
    ++impl->calls;
    y.register_hook([impl](const at::Tensor& /*gradient*/) { impl->begin_backward(); });
    if (until_backward) return y;
  }
  impl->free_unless_held();
  return y;
}

}  // namespace remat
