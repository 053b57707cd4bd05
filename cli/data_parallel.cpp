#include "cli/data_parallel.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include <remat/distributed.h>
#include <remat/error.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include "cli/gloo_group.h"
#include "cli/settings.h"

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
  // A store that outlives a restart has the keys of those that met before.
  const char* const restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return c10::make_intrusive<c10d::PrefixStore>(
      restart == nullptr ? "0" : restart, c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), options));
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
    if (const std::string different = differences(first, options); !different.empty()) {
      throw Error("[ranks] rank 0 was started with " + different + "; give rank " + std::to_string(place.rank) +
                  " the same options and data");
    }
  }

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  float mean(float value) override {
    std::vector<at::Tensor> sum = {at::tensor(value)};
    group_->allreduce(sum)->wait();
    return sum[0].item<float>() / static_cast<float>(group_->getSize());
  }

  std::vector<double> sums(const std::vector<double>& values) override {
    std::vector<at::Tensor> sum = {at::tensor(values, at::kDouble)};
    group_->allreduce(sum)->wait();
    const double* const first = sum[0].const_data_ptr<double>();
    return {first, first + values.size()};
  }

  std::string broadcast(const std::string& text) override {
    std::vector<at::Tensor> size = {at::tensor(static_cast<int64_t>(text.size()), at::kLong)};
    group_->broadcast(size)->wait();
    const auto count = static_cast<size_t>(size[0].item<int64_t>());
    std::vector<at::Tensor> bytes = {rank() == 0 ? tensor_of(text.data(), count) : empty_bytes(count)};
    group_->broadcast(bytes)->wait();
    return {static_cast<const char*>(bytes[0].const_data_ptr()), count};
  }

  void broadcast_buffers() override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& buffer : model_.buffers()) {
      std::vector<at::Tensor> sent = {buffer};
      group_->broadcast(sent)->wait();
    }
  }

  void send(const std::vector<char>& bytes) override {
    std::vector<at::Tensor> size = {at::tensor(static_cast<int64_t>(bytes.size()), at::kLong)};
    group_->send(size, /*dstRank=*/0, kTag)->wait();
    std::vector<at::Tensor> sent = {tensor_of(bytes.data(), bytes.size())};
    group_->send(sent, /*dstRank=*/0, kTag)->wait();
  }

  std::vector<char> receive(int from) override {
    std::vector<at::Tensor> size = {at::zeros({}, at::kLong)};
    group_->recv(size, from, kTag)->wait();
    std::vector<char> bytes(static_cast<size_t>(size[0].item<int64_t>()));
    std::vector<at::Tensor> received = {empty_bytes(bytes.size())};
    group_->recv(received, from, kTag)->wait();
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
      group()->broadcast(sent)->wait();
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
    group()->allreduce_coalesced(gradients)->wait();
    for (at::Tensor& gradient : gradients) gradient.div_(group()->getSize());
  }
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
      blocks_.emplace_back(parameters, group());
    }
    rest_.emplace_back(rest, group());
    model.set_block_runner([this](const zoo::Model::Block& block, at::Tensor x) {
      return blocks_[next_++ % blocks_.size()].call(block, std::move(x));
    });
  }

  NamedTensors leaves() const override {
    NamedTensors result = {{"rest", rest_[0].shard()}};
    for (size_t i = 0; i < blocks_.size(); ++i) result.emplace_back("block" + std::to_string(i), blocks_[i].shard());
    return result;
  }
  at::Tensor run(const std::function<at::Tensor()>& forward) override {
    next_ = 0;
    return rest_[0].call([&](const at::Tensor& /*nothing*/) { return forward(); }, at::empty({0}),
                         /*until_backward=*/true);
  }
  void average_gradients() override {}  // done by backward
  void with_whole_model(const std::function<void()>& work) override {
    try {
      rest_[0].gather();
      for (ShardedParameters& block : blocks_) block.gather();
      work();
    } catch (...) {
      reset();
      throw;
    }
    reset();
  }
  void reset() override {
    rest_[0].free();
    for (ShardedParameters& block : blocks_) block.free();
  }

  void save_own(const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write) override {
    save_tensors_state(own_tensors(), optimizer, steps_done, write);
  }
  int64_t load_own(torch::optim::Optimizer& optimizer, const std::vector<StatePart>& parts) override {
    return load_tensors_state(own_tensors(), optimizer, parts.at(static_cast<size_t>(rank())));
  }

 private:
  NamedTensors own_tensors() const {
    NamedTensors tensors = leaves();
    for (const auto& item : model().named_buffers()) tensors.emplace_back("buffer." + item.key(), item.value());
    return tensors;
  }

  std::vector<ShardedParameters> blocks_, rest_;  // `rest_` is one
  size_t next_ = 0;                               // the block that runs next
};

}  // namespace

std::unique_ptr<DataParallel> DataParallel::join(zoo::Model& model, const RankPlace& place, bool shard,
                                                 const nlohmann::json& options) {
  if (shard) return std::make_unique<Sharded>(model, place, options);
  return std::make_unique<Replicated>(model, place, options);
}

}  // namespace remat::cli
