#include "cli/data_parallel.h"

#include <cstdlib>
#include <string>

#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include "cli/gloo_group.h"

namespace remat::cli {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Store = c10::intrusive_ptr<c10d::Store>;

Store store_of(const RankPlace& place) {
  if (!place.file.empty()) return c10::make_intrusive<c10d::FileStore>(place.file, place.size);
  // torchrun keeps the store itself, and says so.
  const char* const kept = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::strtoul(std::getenv("MASTER_PORT"), nullptr, 10));
  options.isServer = place.rank == 0 && (kept == nullptr || std::string(kept) != "True");
  return c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), options);
}

class Connected : public DataParallel {
 public:
  explicit Connected(const RankPlace& place)
      : store_(store_of(place)),
        group_(make_gloo_group(store_, place.rank, place.size, "model")),
        agreement_(make_gloo_group(store_, place.rank, place.size, "agreement")) {}

  float mean(float value) override {
    std::vector<at::Tensor> sum = {at::tensor(value)};
    group_->allreduce(sum)->wait();
    return sum[0].item<float>() / static_cast<float>(group_->getSize());
  }

  Ranks ranks() const override { return ranks_of(agreement_); }

 protected:
  const Group& group() const { return group_; }

 private:
  Store store_;
  Group group_, agreement_;
};

class Replicated final : public Connected {
 public:
  Replicated(zoo::Model& model, const RankPlace& place) : Connected(place), model_(model) {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.parameters()) {
      std::vector<at::Tensor> sent = {parameter.detach()};
      group()->broadcast(sent)->wait();
    }
  }

  std::vector<std::pair<std::string, at::Tensor>> leaves() const override {
    std::vector<std::pair<std::string, at::Tensor>> result;
    for (const auto& item : model_.named_parameters()) {
      if (item.value().requires_grad()) result.emplace_back(item.key(), item.value());
    }
    return result;
  }
  at::Tensor run(const std::function<at::Tensor()>& forward) override { return forward(); }
  void average_gradients() override {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model_.parameters()) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    group()->allreduce_coalesced(gradients)->wait();
    for (at::Tensor& gradient : gradients) gradient.div_(group()->getSize());
  }
  void reset() override {}

 private:
  zoo::Model& model_;
};

class Sharded final : public Connected {
 public:
  Sharded(zoo::Model& model, const RankPlace& place) : Connected(place) {
    if (model.block_parameters().empty()) {
      throw Error("[train] this model does not say what parameters its blocks have; leave --shard out");
    }
    std::vector<at::Tensor> rest = model.parameters();
    for (const auto& parameters : model.block_parameters()) {
      for (const at::Tensor& parameter : parameters) {
        std::erase_if(rest, [&](const at::Tensor& other) { return other.is_same(parameter); });
      }
      blocks_.emplace_back(parameters, group());
    }
    rest_.emplace_back(rest, group());
    model.set_block_runner([this](const zoo::Model::Block& block, at::Tensor x) {
      return blocks_[next_++ % blocks_.size()].call(block, std::move(x));
    });
  }

  std::vector<std::pair<std::string, at::Tensor>> leaves() const override {
    std::vector<std::pair<std::string, at::Tensor>> result = {{"rest", rest_[0].shard()}};
    for (size_t i = 0; i < blocks_.size(); ++i) result.emplace_back("block" + std::to_string(i), blocks_[i].shard());
    return result;
  }
  at::Tensor run(const std::function<at::Tensor()>& forward) override {
    next_ = 0;
    return rest_[0].call([&](const at::Tensor& /*nothing*/) { return forward(); }, at::empty({0}),
                         /*until_backward=*/true);
  }
  void average_gradients() override {}  // done by backward
  void reset() override {
    rest_[0].free();
    for (ShardedParameters& block : blocks_) block.free();
  }

 private:
  std::vector<ShardedParameters> blocks_, rest_;  // `rest_` is one
  size_t next_ = 0;                               // the block that runs next
};

}  // namespace

std::unique_ptr<DataParallel> DataParallel::join(zoo::Model& model, const RankPlace& place, bool shard) {
  if (shard) return std::make_unique<Sharded>(model, place);
  return std::make_unique<Replicated>(model, place);
}

}  // namespace remat::cli
