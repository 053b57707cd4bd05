// What a loaded model computes, for a comparison with transformers (tests/python/pretrained_test.py):
//
//   reference_program DIRECTORY TASK IN OUT GRADIENTS SAVED
//
// IN has tensors "input" and "target". OUT gets the logits of a step without dropout, GRADIENTS and SAVED are
// directories like DIRECTORY, with the gradients in place of the weights and with the weights themselves.
#include <cstdio>
#include <string>

#include <torch/torch.h>

#include "pretrained/model_directory.h"
#include "pretrained/safetensors.h"

int main(int argc, char** argv) try {
  if (argc != 7) return 2;
  using namespace remat::pretrained;
  const std::string task = argv[2];
  LoadOptions options = {.task = task == "classify" ? Task::kClassify
                                 : task == "mlm"    ? Task::kMaskedTokens
                                                    : Task::kNextToken,
                         .labels = {"LABEL_0", "LABEL_1", "LABEL_2"},
                         .dropout = 0};
  const ModelDirectory directory(argv[1], options);
  const auto model = directory.load();
  directory.save(*model, argv[6]);
  const SafetensorsFile in(argv[3]);
  const auto logits = model->forward(in.read("input"));
  at::cross_entropy_loss(logits.flatten(0, -2), in.read("target").flatten()).backward();
  write_safetensors(argv[4], {{"logits", logits}});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.copy_(parameter.grad());
  directory.save(*model, argv[5]);
  for (const auto& name : directory.missing()) std::puts(name.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
