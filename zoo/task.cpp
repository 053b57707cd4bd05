#include "zoo/task.h"

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/gpt.h"
#include "zoo/mlp.h"
#include "zoo/resnet.h"

namespace remat::zoo {
namespace {

// Cross-entropy over the last dimension, mean over all others.
at::Tensor cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten());
}

at::Tensor mean_squared_error(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

Task gpt_task(int64_t batch, const at::Generator& random) {
  const GptConfig config;
  const auto tokens = [&] { return at::randint(0, config.vocab, {batch, config.seq}, random, at::kLong); };
  return {"gpt", make_gpt(config), tokens(), tokens(), cross_entropy};
}

Task mlp_task(int64_t batch, const at::Generator& random) {
  const MlpConfig config;
  const auto vectors = [&] { return at::randn({batch, config.width}, random); };
  return {"mlp", make_mlp(config), vectors(), vectors(), mean_squared_error};
}

Task resnet_task(int64_t batch, const at::Generator& random) {
  const ResNetConfig config;
  return {"resnet", make_resnet(config), at::randn({batch, 3, 128, 128}, random),
          at::randint(0, config.classes, {batch}, random, at::kLong), cross_entropy};
}

struct Recipe {
  const char* name;
  int64_t batch;
  Task (*make)(int64_t batch, const at::Generator& random);
};

constexpr Recipe kRecipes[] = {{"gpt", 8, gpt_task}, {"mlp", 2048, mlp_task}, {"resnet", 16, resnet_task}};

}  // namespace

Task make_task(std::string_view name, int64_t batch) {
  for (const auto& recipe : kRecipes) {
    if (name != recipe.name) continue;
    if (batch < 0)
      throw Error("[make_task] batch is " + std::to_string(batch) + "; give 1 or more, or 0 for the usual");
    torch::manual_seed(0);
    auto task = recipe.make(batch > 0 ? batch : recipe.batch, at::detail::createCPUGenerator(/*seed_val=*/1));
    task.model->train();
    return task;
  }
  throw Error("[make_task] there is no task '" + std::string(name) + "'; use gpt, mlp or resnet");
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& recipe : kRecipes) names.emplace_back(recipe.name);
  return names;
}

}  // namespace remat::zoo
