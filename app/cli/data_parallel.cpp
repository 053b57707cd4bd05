#include "cli/data_parallel.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "cli/gloo_group.h"
#include "cli/rank_meeting.h"
#include "cli/settings.h"

namespace remat::cli {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Store = c10::intrusive_ptr<c10d::Store>;

/// Blocks until no process can fail before it meets the others.
Store store_of(const RankPlace& place) {
  if (!place.file.empty()) return c10::make_intrusive<c10d::FileStore>(place.file, place.size);
  wait_for_ranks(place);
  return shared_store();
}

at::Tensor empty_bytes(size_t size) { return at::empty({static_cast<int64_t>(size)}, at::kByte); }

/// As a tensor, which groups send; it has a copy.
at::Tensor tensor_of(const char* bytes, size_t size) {
  at::Tensor tensor = empty_bytes(size);
  if (size > 0) std::memcpy(tensor.mutable_data_ptr(), bytes, size);
  return tensor;
}

class Connected : public DataParallel {
 public:
  Connected(zoo::Model& model, const RankPlace& place, const nlohmann::json& options)
      : model_(model),
        store_(store_of(place)),
        group_(make_gloo_group(store_, place.rank, place.size, "model")),
        agreement_(make_gloo_group(store_, place.rank, place.size, "agreement")) {
    const auto first = nlohmann::json::parse(Connected::broadcast(options.dump()));
    const std::string different = differences(first, options);
    const double others = Connected::sums({different.empty() ? 0.0 : 1.0})[0];
    if (!different.empty()) {
      throw Error("[ranks] rank 0 was started with " + different + "; give rank " + std::to_string(place.rank) +
                  " the same options and data");
    }
    if (others > 0) {
      throw Error("[ranks] another process was started with other options or data; its own message says with which");
    }
  }

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  float mean(float value) override {
    std::vector<at::Tensor> sum = {at::tensor(value)};
    finish(group_->allreduce(sum));
    return sum[0].item<float>() / static_cast<float>(group_->getSize());
  }

  std::vector<double> sums(const std::vector<double>& values) override {
    std::vector<at::Tensor> sum = {at::tensor(values, at::kDouble)};
    finish(group_->allreduce(sum));
    const auto* const first = sum[0].const_data_ptr<double>();
    return {first, first + values.size()};
  }

  std::string broadcast(const std::string& text) override {
    std::vector<at::Tensor> size = {at::tensor(static_cast<int64_t>(text.size()), at::kLong)};
    finish(group_->broadcast(size));
    const auto count = static_cast<size_t>(size[0].item<int64_t>());
    std::vector<at::Tensor> bytes = {rank() == 0 ? tensor_of(text.data(), count) : empty_bytes(count)};
    finish(group_->broadcast(bytes));
    return {static_cast<const char*>(bytes[0].const_data_ptr()), count};
  }

  void broadcast_buffers() override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& buffer : model_.buffers()) {
      std::vector<at::Tensor> sent = {buffer};
      finish(group_->broadcast(sent));
    }
  }

  void send(const std::vector<char>& bytes) override {
    std::vector<at::Tensor> size = {at::tensor(static_cast<int64_t>(bytes.size()), at::kLong)};
    finish(group_->send(size, /*dstRank=*/0, kTag));
    std::vector<at::Tensor> sent = {tensor_of(bytes.data(), bytes.size())};
    finish(group_->send(sent, /*dstRank=*/0, kTag));
  }

  std::vector<char> receive(int from) override {
    std::vector<at::Tensor> size = {at::zeros({}, at::kLong)};
    finish(group_->recv(size, from, kTag));
    std::vector<char> bytes(static_cast<size_t>(size[0].item<int64_t>()));
    std::vector<at::Tensor> received = {empty_bytes(bytes.size())};
    finish(group_->recv(received, from, kTag));
    std::memcpy(bytes.data(), received[0].const_data_ptr(), bytes.size());
    return bytes;
  }

  Ranks ranks() const override { return ranks_of(agreement_); }

 protected:
  const Group& group() const { return group_; }
  zoo::Model& model() const { return model_; }

 private:
  static constexpr int kTag = 0;

  zoo::Model& model_;
  Store store_;
  Group group_, agreement_;
};

class Replicated final : public Connected {
 public:
  Replicated(zoo::Model& model, const RankPlace& place, const nlohmann::json& options)
      : Connected(model, place, options) {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.parameters()) {
      std::vector<at::Tensor> sent = {parameter.detach()};
      finish(group()->broadcast(sent));
    }
  }

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
    if (rank() > 0) return save_generator(write);
    save_state(model(), optimizer, steps_done, write);
  }
  int64_t load_own(torch::optim::Optimizer& optimizer, const std::vector<StatePart>& parts) override {
    const int64_t steps_done = load_state(model(), optimizer, parts.at(0));
    if (rank() > 0) load_generator(parts.at(static_cast<size_t>(rank())));
    return steps_done;
  }
};

/// Parameters of a block, or of all that is in none: those that are trained and those that are frozen, each in shards.
class ShardedPart {
 public:
  ShardedPart(std::string name, const std::vector<at::Tensor>& parameters, const Group& group)
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
  Sharded(zoo::Model& model, const RankPlace& place, const nlohmann::json& options) : Connected(model, place, options) {
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
    const double scale = norm / (std::sqrt(sums({squares})[0]) + 1e-6);  // as torch's clip_grad_norm_()
    if (scale >= 1) return;                                              // not where it is no number
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
    return load_tensors_state(changing(), shards().frozen, optimizer, parts.at(static_cast<size_t>(rank())));
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

std::unique_ptr<DataParallel> DataParallel::join(zoo::Model& model, const RankPlace& place, bool shard,
                                                 const nlohmann::json& options) {
  if (shard) return std::make_unique<Sharded>(model, place, options);
  return std::make_unique<Replicated>(model, place, options);
}

}  // namespace remat::cli
