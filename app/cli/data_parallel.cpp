#include "cli/data_parallel.h"

#include <cmath>
#include <optional>
#include <string>

#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/torch.h>

#include "cli/gloo_ranks.h"

namespace remat::cli {
namespace {

class Connected : public DataParallel {
 public:
  Connected(zoo::Model& model, RankGroup& ranks) : model_(model), ranks_(dynamic_cast<GlooRanks&>(ranks)) {}

  void broadcast_buffers() override { broadcast(model_.buffers()); }

 protected:
  c10::intrusive_ptr<c10d::ProcessGroup> group() const { return ranks_.group(); }
  RankGroup& ranks() const { return ranks_; }
  zoo::Model& model() const { return model_; }
  void broadcast(const std::vector<at::Tensor>& tensors) const {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> sent = {tensor.detach()};
      finish(group()->broadcast(sent));
    }
  }

 private:
  zoo::Model& model_;
  GlooRanks& ranks_;
};

class Replicated final : public Connected {
 public:
  Replicated(zoo::Model& model, RankGroup& ranks) : Connected(model, ranks) { broadcast(model.parameters()); }

  NamedTensors leaves() const override { return trained_parameters(model()); }
  at::Tensor run(const std::function<at::Tensor()>& forward) override { return forward(); }
  void average_gradients() override {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model().parameters()) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    finish(group()->allreduce_coalesced(gradients));
    for (at::Tensor& gradient : gradients) gradient.div_(group()->getSize());
  }
  void average_gradient(const at::Tensor& leaf) override {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradient = {leaf.grad()};
    finish(group()->allreduce(gradient));
    gradient[0].div_(group()->getSize());
  }
  void clip_gradients(double norm) override { torch::nn::utils::clip_grad_norm_(model().parameters(), norm); }
  void reset() override {}
  void with_whole_model(const std::function<void()>& work) override { work(); }

  // All have the same but for the numbers that they draw.
  void save_own(const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write) override {
    if (ranks().rank() > 0) return save_generator(write);
    save_state(model(), optimizer, steps_done, write);
  }
  int64_t load_own(torch::optim::Optimizer& optimizer, const std::vector<StatePart>& parts) override {
    const int64_t steps_done = load_state(model(), optimizer, parts.at(0));
    if (ranks().rank() > 0) load_generator(parts.at(static_cast<size_t>(ranks().rank())));
    return steps_done;
  }
};

/// Parameters of a block, or of all that is in none: those that are trained and those that are frozen, each in shards.
class ShardedPart {
 public:
  ShardedPart(std::string name, const std::vector<at::Tensor>& parameters,
              const c10::intrusive_ptr<c10d::ProcessGroup>& group)
      : name_(std::move(name)) {
    std::vector<at::Tensor> trained, frozen;
    for (const at::Tensor& parameter : parameters) (parameter.requires_grad() ? trained : frozen).push_back(parameter);
    if (!trained.empty()) trained_.emplace(std::move(trained), group);
    if (!frozen.empty()) frozen_.emplace(std::move(frozen), group);
  }

  at::Tensor call(const zoo::Model::Block& forward, at::Tensor x, bool until_backward = false) {
    const auto inner = [&](at::Tensor y) {
      return trained_ ? trained_->call(forward, std::move(y), until_backward) : forward(std::move(y));
    };
    return frozen_ ? frozen_->call(inner, std::move(x), until_backward) : inner(std::move(x));
  }
  void gather() {
    for (ShardedParameters* shards : both()) shards->gather();
  }
  void free() {
    for (ShardedParameters* shards : both()) shards->free();
  }
  /// Adds its shard to those that are `trained` or to those that are `frozen`.
  void add_to(NamedTensors& trained, NamedTensors& frozen) const {
    if (trained_) trained.emplace_back(name_, trained_->shard());
    if (frozen_) frozen.emplace_back(name_, frozen_->shard());
  }

 private:
  std::vector<ShardedParameters*> both() {
    std::vector<ShardedParameters*> result;
    if (trained_) result.push_back(&*trained_);
    if (frozen_) result.push_back(&*frozen_);
    return result;
  }

  std::string name_;
  std::optional<ShardedParameters> trained_, frozen_;  // at least one
};

class Sharded final : public Connected {
 public:
  Sharded(zoo::Model& model, RankGroup& ranks) : Connected(model, ranks) {
    if (model.block_parameters().empty()) {
      throw Error("[train] this model does not say what parameters its blocks have; leave --shard out");
    }
    std::vector<at::Tensor> rest = model.parameters();
    for (const auto& parameters : model.block_parameters()) {
      for (const at::Tensor& parameter : parameters) {
        std::erase_if(rest, [&](const at::Tensor& other) { return other.is_same(parameter); });
      }
      parts_.emplace_back("block" + std::to_string(parts_.size()), parameters, group());
    }
    parts_.emplace_back("rest", rest, group());
    model.set_block_runner([this](const zoo::Model::Block& block, at::Tensor x) {
      return parts_[next_++ % (parts_.size() - 1)].call(block, std::move(x));
    });
  }

  NamedTensors leaves() const override { return shards().trained; }
  at::Tensor run(const std::function<at::Tensor()>& forward) override {
    next_ = 0;
    return parts_.back().call([&](const at::Tensor& /*nothing*/) { return forward(); }, at::empty({0}),
                              /*until_backward=*/true);
  }
  void average_gradients() override {}  // done by backward
  void average_gradient(const at::Tensor& /*leaf*/) override {}
  void clip_gradients(double norm) override {
    std::vector<at::Tensor> gradients;
    double squares = 0;  // of this process's shards; what is padded is zero
    for (const auto& [name, leaf] : leaves()) {
      if (!leaf.grad().defined()) continue;
      gradients.push_back(leaf.grad());
      const auto own = gradients.back().norm().item<double>();
      squares += own * own;
    }
    const double scale = norm / (std::sqrt(ranks().sums({squares})[0]) + 1e-6);  // as torch's clip_grad_norm_()
    if (scale >= 1) return;                                                      // not where it is no number
    for (at::Tensor& gradient : gradients) gradient.mul_(scale);
  }
  void with_whole_model(const std::function<void()>& work) override {
    try {
      for (ShardedPart& part : parts_) part.gather();
      work();
    } catch (...) {
      reset();
      throw;
    }
    reset();
  }
  void reset() override {
    for (ShardedPart& part : parts_) part.free();
  }

  void save_own(const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write) override {
    save_tensors_state(changing(), shards().frozen, optimizer, steps_done, write);
  }
  int64_t load_own(torch::optim::Optimizer& optimizer, const std::vector<StatePart>& parts) override {
    return load_tensors_state(changing(), shards().frozen, optimizer, parts.at(static_cast<size_t>(ranks().rank())));
  }

 private:
  struct Shards {
    NamedTensors trained, frozen;
  };
  Shards shards() const {
    Shards all;
    parts_.back().add_to(all.trained, all.frozen);  // first: checkpoints have the optimizer's state in this order
    for (size_t i = 0; i + 1 < parts_.size(); ++i) parts_[i].add_to(all.trained, all.frozen);
    return all;
  }
  NamedTensors changing() const {
    NamedTensors tensors = leaves();
    for (const auto& item : model().named_buffers()) tensors.emplace_back("buffer." + item.key(), item.value());
    return tensors;
  }

  std::vector<ShardedPart> parts_;  // the blocks, in the order in which they run, and the rest
  size_t next_ = 0;                 // the block that runs next
};

}  // namespace

std::unique_ptr<DataParallel> DataParallel::make(zoo::Model& model, RankGroup& ranks, bool shard) {
  if (shard) return std::make_unique<Sharded>(model, ranks);
  return std::make_unique<Replicated>(model, ranks);
}

}  // namespace remat::cli
