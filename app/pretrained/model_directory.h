// pretrained/model_directory.h -- a directory of Hugging Face's form: config.json, weights, a tokenizer's files.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pretrained/checkpoint.h"
#include "pretrained/config_file.h"
#include "pretrained/families.h"
#include "zoo/model.h"

namespace remat::pretrained {

/// A file beside the weights that belongs to the model, and is small: a tokenizer's, a license and the like; not
/// config.json, nor weights in any form.
bool is_copied(const std::filesystem::path& file);

/// A model of a kind that families.h knows (config.json's "model_type"), to be trained for a task. Not thread-safe.
class ModelDirectory {
 public:
  /// Reads config.json and the headers of the weights. Throws Error for other models, for settings that remat's models
  /// cannot compute, where the weights are not those of the model that config.json describes, and as Checkpoint does.
  ModelDirectory(std::filesystem::path path, LoadOptions options);

  const std::filesystem::path& path() const { return path_; }
  std::string kind() const { return std::string(family_.kind); }
  const LoadOptions& options() const { return options_; }
  /// Scalars of the weights, without LoRA's factors.
  int64_t parameter_count() const { return description_.parameters; }
  /// Token numbers are below it; 0 for a model that sees pictures.
  int64_t vocabulary() const { return description_.vocabulary; }
  /// Pixels on each side of the pictures that the model sees; 0 for one that reads tokens.
  int64_t image() const { return description_.image; }
  /// The longest input in tokens, where positions are learned.
  std::optional<int64_t> longest() const { return description_.longest; }
  /// Names of classes in config.json, by number; empty where there are none.
  std::vector<std::string> labels() const { return config_.labels(); }
  /// How many classes the weights of the classifier tell apart; nothing where there are no such weights.
  std::optional<int64_t> classifier_classes() const;
  /// Parameters of a head that the directory has no weights for, as transformers calls them.
  std::vector<std::string> missing() const;
  /// What parameter or buffer `ours` is called in transformers.
  TheirName name_of(const std::string& ours) const;
  /// What the linear layer `ours`, "block3.qkv", is called there.
  std::string layer_name(const std::string& ours) const;

  /// A new model in training mode with these weights, in float32. What is missing is drawn from the default generator.
  /// With LoRA factors are added to it, and what is missing is trained beside them. Throws Error for tensors that the
  /// model has no place for, but those that transformers ignores, for types other than float32, float16 and bfloat16,
  /// for weights that are not finite, and as zoo::add_lora() does.
  std::shared_ptr<zoo::Model> load() const;
  /// Writes `model`, one that load() made, to `to` so that transformers loads it: parameters in float32, buffers,
  /// LoRA's factors merged into the weights beside them, config.json and the other small files from here (a
  /// tokenizer's). `to` is created; files of it that are not written stay, except weights in several files and their
  /// index. Throws Error where `to` is the directory itself, and where writing fails: then nothing of `to` has changed.
  /// `on_part`: gets the path at which the weights are written first.
  void save(const zoo::Model& model, const std::filesystem::path& to,
            const std::function<void(const std::string& part)>& on_part = {}) const;

 private:
  [[noreturn]] void refuse_missing(const std::string& name) const;
  /// What `name` is called in these weights; nothing where they have no such tensor.
  std::optional<std::string> find_entry(const std::string& name) const;
  void check_size() const;
  void check_types(const std::vector<std::string>& used) const;
  /// `used`: names of tensors, sorted.
  void check_places(const std::vector<std::string>& used) const;
  void check_tied(const std::string& name, const std::string& to) const;
  bool is_ignored(const std::string& name) const;
  nlohmann::json saved_config() const;

  std::filesystem::path path_;
  LoadOptions options_;
  ConfigFile config_;
  const Family& family_;
  Description description_;
  Checkpoint weights_;
};

}  // namespace remat::pretrained
