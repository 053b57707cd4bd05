#include "cli/train_model.h"

#include <optional>
#include <string>

#include <remat/error.h>

#include "zoo/gpt.h"
#include "zoo/mlp.h"

namespace remat::cli {
namespace {

constexpr int64_t kBytes = 256;  // the vocabulary: every byte is a token

// Of float32, in bytes for each parameter.
constexpr int64_t kStepBytes = 8;       // itself, its gradient
constexpr int64_t kTrainingBytes = 16;  // and two averages of AdamW

zoo::GptConfig gpt(const ModelSettings& settings) {
  return {.layers = settings.layers,
          .width = settings.width,
          .heads = settings.heads,
          .seq = settings.seq,
          .vocab = kBytes,
          .dropout = settings.dropout};
}

zoo::WindowMlpConfig mlp(const ModelSettings& settings) {
  return {.layers = settings.layers, .width = settings.width, .seq = settings.seq, .vocab = kBytes};
}

[[noreturn]] void refuse(const ModelSettings& settings) {
  throw Error("[train] there is no model '" + settings.kind + "'; use gpt or mlp");
}

}  // namespace

std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings) {
  if (settings.kind == "gpt") return zoo::make_gpt(gpt(settings));
  if (settings.kind == "mlp") return zoo::make_window_mlp(mlp(settings));
  refuse(settings);
}

int64_t parameter_count(const ModelSettings& settings) {
  if (settings.kind == "gpt") return zoo::parameter_count(gpt(settings));
  if (settings.kind == "mlp") return zoo::parameter_count(mlp(settings));
  refuse(settings);
}

void check_model_fits(const ModelSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards) {
  const int64_t count = parameter_count(settings);
  const auto model = std::to_string(settings.layers) + " layers of width " + std::to_string(settings.width) + " have " +
                     std::to_string(count) + " parameters, which need ";
  const int64_t training = count / shards * kTrainingBytes, step = count / shards * kStepBytes;
  if (training > machine_bytes) {
    throw Error("[train] " + model + format_exact_bytes(training) +
                " with gradients and optimizer state; the machine has " + format_exact_bytes(machine_bytes) +
                "; lower --layers or --width");
  }
  if (budget.kind() == Budget::Kind::kBytes && step > budget.byte_count()) {
    throw BudgetError("[train] " + model + format_exact_bytes(step) + " with gradients; the budget is " +
                          format_exact_bytes(budget.byte_count()) + "; give a larger one, or lower --layers or --width",
                      budget.byte_count(), step, std::nullopt);
  }
}

}  // namespace remat::cli
