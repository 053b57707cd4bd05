// pretrained/families.h -- the kinds of models that can be loaded: how config.json describes one, and what its
// parameters are called.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pretrained/config_file.h"
#include "pretrained/names.h"
#include "zoo/lora.h"
#include "zoo/model.h"

namespace remat::pretrained {

/// What the model's output is trained for.
enum class Task {
  kNextToken,     ///< decoders: gpt2, llama, ...
  kMaskedTokens,  ///< encoders: bert, ...
  kClassify,      ///< encoders, vit, efficientnet
};

struct LoadOptions {
  Task task = Task::kNextToken;
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};  ///< names of the classes of a classification
  std::optional<double> dropout;  ///< nothing: as config.json says; also of attention weights
  /// Its patterns name layers as transformers does. Nothing: all parameters are trained.
  std::optional<zoo::LoraConfig> lora = std::nullopt;
  /// Called before weights are allocated; what it returns lives until they are. Nothing: they are as other tensors.
  std::function<std::shared_ptr<void>()> place_weights = nullptr;

  int64_t classes() const { return static_cast<int64_t>(labels.size()); }
};

/// A model that config.json describes, not yet built.
struct Description {
  std::function<std::shared_ptr<zoo::Model>()> make;
  int64_t parameters = 0;
  int64_t layers = 0;
  int64_t vocabulary = 0;  ///< 0: it sees pictures
  std::optional<int64_t> longest;
  int64_t image = 0;  ///< pixels on each side of the pictures that it sees; 0: it reads tokens
};

struct Family {
  std::string_view kind;  ///< config.json's "model_type"
  Description (*describe)(const ConfigFile& config, const LoadOptions& options);
  std::span<const Renaming> renamings;  ///< of parameters, and of the modules that have buffers
  std::string_view prefix;              ///< of names in a model with a head; weights without any head go without it
  std::string_view predicting;          ///< transformers' class of the model that predicts tokens
  std::string_view classifying;         ///< of the one that classifies texts
  /// Parameters, as the zoo calls them, that weights may lack: those of a head that was not trained before.
  std::span<const char* const> (*head_of)(Task task);
  /// Tensors of weights that are no parameters: buffers of old versions, heads that a task does not use. A name's
  /// begin, or after '*' its end.
  std::span<const std::string_view> ignored;
  std::string_view tied;       ///< an output layer's matrix, which some weights have once more
  std::string_view embedding;  ///< the matrix that it must be the same as
};

std::span<const Family> decoder_families();  ///< what predicts the next token
std::span<const Family> encoder_families();  ///< what sees a text from both sides
std::span<const Family> picture_families();  ///< what classifies pictures

/// Throws Error unless the task of `options` is one of `known`.
void expect_task(const ConfigFile& config, const LoadOptions& options, std::initializer_list<Task> known);

/// Null where there is none.
const Family* find_family(std::string_view kind);
/// "gpt2, llama, ...".
std::string list_families();

}  // namespace remat::pretrained
