#include "zoo/task.h"

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/bert.h"
#include "zoo/deep.h"
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
Task bert_task(int64_t batch, const at::Generator& random) {
  constexpr int64_t kSeq = 128;
  const BertConfig config;
  const auto tokens = at::randint(0, config.vocab, {batch, kSeq}, random, at::kLong);
  const auto positions = at::arange(kSeq, at::kLong);
  const auto types = (positions >= kSeq / 2).to(at::kLong).expand({batch, kSeq});
  const auto lengths = at::randint(3 * kSeq / 4, kSeq + 1, {batch, 1}, random, at::kLong);
  const auto mask = (positions < lengths).to(at::kLong);
  return {"bert", make_bert(config), at::stack({tokens * mask, types * mask, mask}, 1),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task deep_task(int64_t batch, const at::Generator& random) {
  const DeepConfig config;
  const auto vectors = [&] { return at::randn({batch, config.width}, random); };
  return {"deep", make_deep(config), vectors(), vectors(), mean_squared_error};
}

Task efficientnet_task(int64_t batch, const at::Generator& random) {
  const EfficientNetConfig config;
  return {"efficientnet", make_efficientnet(config), at::randn({batch, 3, 128, 128}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task gpt_task(int64_t batch, const at::Generator& random) {
  const GptConfig config;
  const auto tokens = [&] { return at::randint(0, config.vocab, {batch, config.seq}, random, at::kLong); };
  return {"gpt", make_gpt(config), tokens(), tokens(), cross_entropy};
}

Task lstm_task(int64_t batch, const at::Generator& random) {
  constexpr int64_t kSeq = 96;
  const LstmConfig config;
  const auto tokens = [&] { return at::randint(0, config.vocab, {batch, kSeq}, random, at::kLong); };
  return {"lstm", make_lstm(config), tokens(), tokens(), cross_entropy};
}

Task mlp_of(const MlpConfig& config, int64_t batch, const at::Generator& random) {
  const auto vectors = [&] { return at::randn({batch, config.width}, random); };
  return {"mlp", make_mlp(config), vectors(), vectors(), mean_squared_error};
}

Task mlp_task(int64_t batch, const at::Generator& random) { return mlp_of({}, batch, random); }

Task moe_task(int64_t batch, const at::Generator& random) {
  const MoeConfig config;
  const auto tokens = [&] { return at::randint(0, config.vocab, {batch, config.seq}, random, at::kLong); };
  return {"moe", make_moe(config), tokens(), tokens(), cross_entropy};
}

Task resnet_task(int64_t batch, const at::Generator& random) {
  const ResNetConfig config;
  return {"resnet", make_resnet(config), at::randn({batch, 3, 128, 128}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task cifar_resnet_of(int64_t layers, int64_t batch, const at::Generator& random) {
  const auto config = cifar_resnet_config(layers);
  return {"cifar-resnet", make_resnet(config), at::randn({batch, 3, 32, 32}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

Task unet_task(int64_t batch, const at::Generator& random) {
  const UNetConfig config;
  return {"unet", make_unet(config), at::randn({batch, 3, 128, 128}, random),
          at::randint(0, config.classes, {batch, 128, 128}, random, at::kLong), pixel_cross_entropy};
}

Task vit_task(int64_t batch, const at::Generator& random) {
  const VitConfig config;
  return {"vit", make_vit(config), at::randn({batch, 3, config.image, config.image}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

struct Recipe {
  TaskInfo info;
  Task (*make)(int64_t batch, const at::Generator& random);
};

constexpr Recipe kRecipes[] = {
    {{"bert", 8, "BERT-base that classifies texts of 128 tokens, dropout 0.1, also inside attention"}, bert_task},
    {{"deep", 1024, "100 residual blocks of width 256"}, deep_task},
    {{"efficientnet", 16, "EfficientNet-B0 on 128 x 128 pixels, dropout and stochastic depth 0.2"}, efficientnet_task},
    {{"gpt", 8, "12 layers of width 512, 256 tokens, vocabulary 8192, dropout 0.1"}, gpt_task},
    {{"lstm", 64, "2 layers of width 512, 96 tokens, vocabulary 1024, dropout 0.2"}, lstm_task},
    {{"mlp", 2048, "40 layers of width 1024"}, mlp_task},
    {{"moe", 8, "6 layers of width 512, each token through 2 of 8 experts, 128 tokens, vocabulary 8192"}, moe_task},
    {{"resnet", 16, "ResNet-50 on 128 x 128 pixels"}, resnet_task},
    {{"unet", 16, "U-Net of width 32, 4 levels, on 128 x 128 pixels"}, unet_task},
    {{"vit", 8, "ViT-B/16 on 224 x 224 pixels"}, vit_task},
};

void check_batch(int64_t batch) {
  if (batch >= 0) return;
  throw Error("[make_task] batch is " + std::to_string(batch) + "; give 1 or more, or 0 for the usual");
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

Task make_task(std::string_view name, int64_t batch) {
  std::string names;
  for (const auto& [info, make] : kRecipes) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
    if (name != info.name) continue;
    check_batch(batch);
    auto task = make(batch > 0 ? batch : info.batch, seeded());
    task.model->train();
    return task;
  }
  throw Error("[make_task] there is no task '" + std::string(name) + "'; there are " + names);
}

Task make_deep_task(std::string_view name, int64_t layers, int64_t batch) {
  check_batch(batch);
  if (name == "mlp") return mlp_of({.layers = layers}, batch > 0 ? batch : 2048, seeded());
  if (name == "cifar-resnet") return cifar_resnet_of(layers, batch > 0 ? batch : 64, seeded());
  throw Error("[make_deep_task] there is no task '" + std::string(name) + "'; there are mlp, cifar-resnet");
}

}  // namespace remat::zoo
