#include "zoo/task.h"

#include <algorithm>

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/bert.h"
#include "zoo/deep.h"
#include "zoo/dense.h"
#include "zoo/efficientnet.h"
#include "zoo/gpt.h"
#include "zoo/lstm.h"
#include "zoo/mlp.h"
#include "zoo/moe.h"
#include "zoo/resnet.h"
#include "zoo/unet.h"
#include "zoo/vit.h"

namespace remat::zoo {
namespace {

// Cross-entropy over the last dimension, mean over all others.
at::Tensor cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten());
}

// The same where classes are the second dimension and pixels follow.
at::Tensor pixel_cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output, target);
}

at::Tensor mean_squared_error(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

// Two texts in each example, of 64 tokens at most, and padding.
Task bert_task(const TaskSizes& sizes, const at::Generator& random) {
  const int64_t batch = sizes.batch, seq = sizes.length;
  BertConfig config{.layers = sizes.depth, .width = sizes.width, .hidden = 4 * sizes.width};
  config.seq = std::max(config.seq, seq);
  const auto tokens = at::randint(0, config.vocab, {batch, seq}, random, at::kLong);
  const auto positions = at::arange(seq, at::kLong);
  const auto types = (positions >= seq / 2).to(at::kLong).expand({batch, seq});
  const auto lengths = at::randint(3 * seq / 4, seq + 1, {batch, 1}, random, at::kLong);
  const auto mask = (positions < lengths).to(at::kLong);
  return {"bert", make_bert(config), at::stack({tokens * mask, types * mask, mask}, 1),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task deep_task(const TaskSizes& sizes, const at::Generator& random) {
  const DeepConfig config{.layers = sizes.depth, .width = sizes.width, .hidden = 2 * sizes.width};
  const auto vectors = [&] { return at::randn({sizes.batch, config.width}, random); };
  return {"deep", make_deep(config), vectors(), vectors(), mean_squared_error};
}

Task dense_task(const TaskSizes& sizes, const at::Generator& random) {
  const DenseConfig config;
  return {"dense", make_dense(config), at::randn({sizes.batch, config.features}, random),
          at::randn({sizes.batch, config.units.back()}, random), mean_squared_error};
}

// Pictures of `sizes.length` pixels on each side.
at::Tensor pictures(const TaskSizes& sizes, const at::Generator& random) {
  return at::randn({sizes.batch, 3, sizes.length, sizes.length}, random);
}

Task efficientnet_task(const TaskSizes& sizes, const at::Generator& random) {
  const EfficientNetConfig config;
  const int64_t batch = sizes.batch;
  return {"efficientnet", make_efficientnet(config), pictures(sizes, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task gpt_task(const TaskSizes& sizes, const at::Generator& random) {
  const GptConfig config{.layers = sizes.depth, .width = sizes.width, .seq = sizes.length};
  const auto tokens = [&] { return at::randint(0, config.vocab, {sizes.batch, config.seq}, random, at::kLong); };
  return {"gpt", make_gpt(config), tokens(), tokens(), cross_entropy};
}

Task lstm_task(const TaskSizes& sizes, const at::Generator& random) {
  const LstmConfig config{.layers = sizes.depth, .width = sizes.width};
  const auto tokens = [&] { return at::randint(0, config.vocab, {sizes.batch, sizes.length}, random, at::kLong); };
  return {"lstm", make_lstm(config), tokens(), tokens(), cross_entropy};
}

Task mlp_of(const MlpConfig& config, int64_t batch, const at::Generator& random) {
  const auto vectors = [&] { return at::randn({batch, config.width}, random); };
  return {"mlp", make_mlp(config), vectors(), vectors(), mean_squared_error};
}

Task mlp_task(const TaskSizes& sizes, const at::Generator& random) {
  return mlp_of({.layers = sizes.depth, .width = sizes.width}, sizes.batch, random);
}

Task moe_task(const TaskSizes& sizes, const at::Generator& random) {
  const MoeConfig config{.layers = sizes.depth, .width = sizes.width, .hidden = 2 * sizes.width, .seq = sizes.length};
  const auto tokens = [&] { return at::randint(0, config.vocab, {sizes.batch, config.seq}, random, at::kLong); };
  return {"moe", make_moe(config), tokens(), tokens(), cross_entropy};
}

Task resnet_task(const TaskSizes& sizes, const at::Generator& random) {
  const ResNetConfig config{.width = sizes.width};
  const int64_t batch = sizes.batch;
  return {"resnet", make_resnet(config), pictures(sizes, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task cifar_resnet_of(int64_t layers, int64_t batch, const at::Generator& random) {
  const auto config = cifar_resnet_config(layers);
  return {"cifar-resnet", make_resnet(config), at::randn({batch, 3, 32, 32}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task unet_task(const TaskSizes& sizes, const at::Generator& random) {
  const UNetConfig config{.width = sizes.width};
  return {"unet", make_unet(config), pictures(sizes, random),
          at::randint(0, config.classes, {sizes.batch, sizes.length, sizes.length}, random, at::kLong),
          pixel_cross_entropy};
}

Task vit_task(const TaskSizes& sizes, const at::Generator& random) {
  const VitConfig config{.image = sizes.length, .layers = sizes.depth, .width = sizes.width, .hidden = 4 * sizes.width};
  const int64_t batch = sizes.batch;
  return {"vit", make_vit(config), pictures(sizes, random), at::randint(0, config.classes, {batch}, random, at::kLong),
          cross_entropy};
}

struct Recipe {
  TaskInfo info;
  Task (*make)(const TaskSizes& sizes, const at::Generator& random);  ///< all of them given
};

constexpr Recipe kRecipes[] = {
    {{"bert",
      8,
      "BERT-base that classifies texts of 128 tokens, dropout 0.1, also inside attention",
      {128},
      {12},
      {768, 12}},
     bert_task},
    {{"deep", 1024, "100 residual blocks of width 256", {}, {100}, {256}}, deep_task},
    {{"dense", 64, "two layers, of 16 and 32 units", {}, {}, {}}, dense_task},
    {{"efficientnet", 16, "EfficientNet-B0 on 128 x 128 pixels, dropout and stochastic depth 0.2", {128, 32}, {}, {}},
     efficientnet_task},
    {{"gpt", 8, "12 layers of width 512, 256 tokens, vocabulary 8192, dropout 0.1", {256}, {12}, {512, 8}, true}, gpt_task},
    {{"lstm", 64, "2 layers of width 512, 96 tokens, vocabulary 1024, dropout 0.2", {96}, {2}, {512}}, lstm_task},
    {{"mlp", 2048, "40 layers of width 1024", {}, {40}, {1024}}, mlp_task},
    {{"moe",
      8,
      "6 layers of width 512, each token through 2 of 8 experts, 128 tokens, vocabulary 8192",
      {128},
      {6},
      {512, 8},
      true},
     moe_task},
    {{"resnet", 16, "ResNet-50 on 128 x 128 pixels", {128, 32}, {}, {64}}, resnet_task},
    {{"unet", 16, "U-Net of width 32, 4 levels, on 128 x 128 pixels", {128, 16}, {}, {32, 8}}, unet_task},
    {{"vit", 8, "ViT-B/16 on 224 x 224 pixels", {224, 16}, {12}, {768, 12}}, vit_task},
};

void check_batch(int64_t batch) {
  if (batch >= 0) return;
  throw Error("[make_task] batch is " + std::to_string(batch) + "; give 1 or more, or 0 for the usual");
}

int64_t chosen(const TaskInfo& info, const char* what, const TaskLength& length, int64_t wanted) {
  if (wanted == 0) return length.usual;
  const std::string which = std::string(info.name) + "'s " + what;
  if (length.usual == 0) throw Error("[make_task] " + which + " cannot be another; leave it out");
  if (wanted < 0 || wanted % length.step != 0) {
    throw Error("[make_task] " + which + " is " + std::to_string(wanted) + "; give a multiple of " +
                std::to_string(length.step));
  }
  return wanted;
}

at::Generator seeded() {
  torch::manual_seed(0);
  return at::detail::createCPUGenerator(/*seed_val=*/1);
}

}  // namespace

std::vector<TaskInfo> list_tasks() {
  std::vector<TaskInfo> tasks;
  for (const auto& recipe : kRecipes) tasks.push_back(recipe.info);
  return tasks;
}

Task make_task(std::string_view name, int64_t batch) { return make_task(name, TaskSizes{.batch = batch}); }

Task make_task(std::string_view name, const TaskSizes& sizes) {
  std::string names;
  for (const auto& [info, make] : kRecipes) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
    if (name != info.name) continue;
    check_batch(sizes.batch);
    auto task = make({.batch = sizes.batch > 0 ? sizes.batch : info.batch,
                      .length = chosen(info, "length", info.length, sizes.length),
                      .depth = chosen(info, "depth", info.depth, sizes.depth),
                      .width = chosen(info, "width", info.width, sizes.width)},
                     seeded());
    task.model->train();
    return task;
  }
  throw Error("[make_task] there is no task '" + std::string(name) + "'; there are " + names);
}

Task with_batch(const Task& task, int64_t batch) {
  const auto rows = at::arange(batch, at::kLong).remainder(task.input.size(0));
  Task other = task;
  other.input = task.input.index_select(0, rows);
  other.target = task.target.index_select(0, rows);
  return other;
}

Task make_deep_task(std::string_view name, int64_t layers, int64_t batch) {
  check_batch(batch);
  if (name == "mlp") return mlp_of({.layers = layers}, batch > 0 ? batch : 2048, seeded());
  if (name == "cifar-resnet") return cifar_resnet_of(layers, batch > 0 ? batch : 64, seeded());
  throw Error("[make_deep_task] there is no task '" + std::string(name) + "'; there are mlp, cifar-resnet");
}

}  // namespace remat::zoo
