// What a loaded model computes, for a comparison with transformers (tests/python/pretrained_test.py):
//
//   reference_program DIRECTORY TASK IN OUT GRADIENTS SAVED [TARGET]
//
// IN has tensors "input" and "target". OUT gets the logits of a step without dropout, GRADIENTS and SAVED are
// directories like DIRECTORY, with the gradients in place of the weights and with the weights themselves. With TARGET,
// a pattern, the logits are those of a model with LoRA's factors, which are drawn; SAVED gets the merged weights, and
// GRADIENTS, except of a ViT, is an adapter in peft's form.
#include <cstdio>
#include <string>

#include <torch/torch.h>

#include "pretrained/adapter.h"
#include "pretrained/model_directory.h"
#include "pretrained/safetensors.h"

int main(int argc, char** argv) try {
  if (argc != 7 && argc != 8) return 2;
  using namespace remat::pretrained;
  const std::string task = argv[2];
  LoadOptions options = {.task = task == "classify" ? Task::kClassify
                                 : task == "mlm"    ? Task::kMaskedTokens
                                                    : Task::kNextToken,
                         .labels = {"LABEL_0", "LABEL_1", "LABEL_2"},
                         .dropout = 0};
  if (argc == 8) options.lora = {.rank = 4, .alpha = 6, .layers = {argv[7]}};
  const ModelDirectory directory(argv[1], options);
  const auto model = directory.load();
  for (const auto& [name, layer] : remat::zoo::lora_layers(*model)) {
    at::Tensor(layer->lora_b()).detach().normal_(0.0, 0.3);
  }
  directory.save(*model, argv[6]);
  const SafetensorsFile in(argv[3]);
  const auto logits = model->forward(in.read("input"));
  write_safetensors(argv[4], {{"logits", logits}});
  if (options.lora) {
    if (directory.kind() != "vit") save_adapter(directory, *model, argv[5]);
    return 0;
  }
  at::cross_entropy_loss(logits.flatten(0, -2), in.read("target").flatten()).backward();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.copy_(parameter.grad());
  directory.save(*model, argv[5]);
  for (const auto& name : directory.missing()) std::puts(name.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
