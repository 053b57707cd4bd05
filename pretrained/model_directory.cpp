#include "pretrained/model_directory.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::pretrained {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMostCopiedBytes = 256
                                       << 20;  // of one file: vocabularies are smaller, weights in other forms larger

bool replace_end(std::string& text, std::string_view end, std::string_view by) {
  if (!text.ends_with(end)) return false;
  text.replace(text.size() - end.size(), end.size(), by);
  return true;
}

const Family& family_of(const ConfigFile& config) {
  const auto kind = config.text("model_type");
  if (const Family* const family = find_family(kind)) return *family;
  config.refuse("describes a " + kind + "; there are " + list_families());
}

void copy(const Checkpoint& weights, const std::string& entry, bool transposed, at::Tensor parameter) {
  at::Tensor theirs = weights.read(entry);
  if (transposed && theirs.dim() == 2) theirs = theirs.t();
  if (theirs.sizes() != parameter.sizes() || !(theirs.is_floating_point())) {
    std::ostringstream message;
    message << "[pretrained] tensor '" << entry << "' is of type " << theirs.scalar_type() << " and shape "
            << theirs.sizes() << ", config.json says " << parameter.sizes()
            << "; get a directory whose files belong together";
    throw Error(message.str());
  }
  parameter.copy_(theirs);
}

/// The tokenizer's files and the like: everything small that is not written anew, nor weights in any form.
void copy_small_files(const fs::path& from, const fs::path& to) {
  for (const auto& file : fs::directory_iterator(from)) {
    const auto name = file.path().filename().string();
    const auto ending = file.path().extension();
    const bool other = ending == ".json" || ending == ".txt" || ending == ".model" || ending == ".jinja";
    if (!file.is_regular_file() || !other || file.file_size() > kMostCopiedBytes) continue;
    if (name == "config.json" || name.ends_with(".index.json")) continue;
    fs::copy_file(file.path(), to / name, fs::copy_options::overwrite_existing);
  }
}

}  // namespace

ModelDirectory::ModelDirectory(fs::path path, const LoadOptions& options)
    : path_(std::move(path)),
      options_(options),
      config_(path_ / "config.json"),
      family_(family_of(config_)),
      description_(family_.describe(config_, options_)),
      weights_(path_) {
  check_size();
}

/// Before the model is built: config.json may describe one that no machine can hold.
void ModelDirectory::check_size() const {
  const int64_t most = 2 * weights_.numel() + (int64_t{1} << 20);  // a new head is small beside the rest
  if (description_.layers <= static_cast<int64_t>(weights_.entries().size()) && description_.parameters <= most) return;
  config_.refuse("describes " + std::to_string(description_.parameters) + " parameters in " +
                 std::to_string(description_.layers) + " layers, and the weights beside it have " +
                 std::to_string(weights_.numel()) + " numbers in " + std::to_string(weights_.entries().size()) +
                 " tensors");
}

TheirName ModelDirectory::name_of(const std::string& ours) const {
  if (auto found = find_name(family_.renamings, ours)) return *std::move(found);
  throw InternalError("[pretrained] parameter '" + ours + "' has no name; please report this");
}

std::optional<std::string> ModelDirectory::find_entry(const std::string& name) const {
  std::vector<std::string> names = {name};
  if (name.starts_with(family_.prefix)) names.push_back(name.substr(family_.prefix.size()));  // a model without a head
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    std::string old = names[i];  // of the first BERT
    if (replace_end(old, "LayerNorm.weight", "LayerNorm.gamma") || replace_end(old, "LayerNorm.bias", "LayerNorm.beta"))
      names.push_back(old);
  }
  const auto found = std::ranges::find_if(names, [&](const auto& n) { return weights_.entries().contains(n); });
  return found == names.end() ? std::nullopt : std::optional(*found);
}

std::optional<int64_t> ModelDirectory::classifier_classes() const {
  const auto theirs = find_name(family_.renamings, "classify.weight");
  const auto entry = theirs ? find_entry(theirs->name) : std::nullopt;
  if (!entry || weights_.entries().at(*entry).shape.empty()) return std::nullopt;
  return weights_.entries().at(*entry).shape.front();
}

std::vector<std::string> ModelDirectory::missing() const {
  std::vector<std::string> names;
  for (const auto* const head : family_.head_of(options_.task)) {
    if (const auto name = name_of(head).name; !find_entry(name)) names.push_back(name);
  }
  return names;
}

std::shared_ptr<zoo::Model> ModelDirectory::load() const {
  const auto model = description_.make();
  const auto may_be_missing = missing();
  const torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) {
    const TheirName theirs = name_of(item.key());
    if (const auto entry = find_entry(theirs.name)) {
      copy(weights_, *entry, theirs.transposed, item.value());
    } else if (std::ranges::find(may_be_missing, theirs.name) == may_be_missing.end()) {
      throw Error("[pretrained] the weights in '" + path_.string() + "' have no tensor '" + theirs.name +
                  "', which config.json calls for; get a directory whose files belong together");
    }
  }
  model->train();
  return model;
}

nlohmann::json ModelDirectory::saved_config() const {
  nlohmann::json config = config_.json();
  const bool classifies = options_.task == Task::kClassify;
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  config["architectures"] = {classifies ? family_.classifying : family_.predicting};
  if (!classifies) return config;
  auto& labels = config["id2label"] = nlohmann::json::object();
  auto& numbers = config["label2id"] = nlohmann::json::object();
  for (size_t i = 0; i < options_.labels.size(); ++i) {
    labels[std::to_string(i)] = options_.labels[i];
    numbers[options_.labels[i]] = i;
  }
  return config;
}

void ModelDirectory::save(const zoo::Model& model, const fs::path& to) const {
  std::error_code error;
  if (fs::equivalent(path_, to, error)) {
    throw Error("[pretrained] '" + to.string() + "' is where the model came from; give another directory");
  }
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : model.named_parameters()) {
    const TheirName theirs = name_of(item.key());
    const bool transposed = theirs.transposed && item.value().dim() == 2;
    tensors.emplace_back(theirs.name, transposed ? item.value().t() : item.value());
  }
  try {
    fs::create_directories(to);
    copy_small_files(path_, to);
    std::ofstream file(to / "config.json");
    file << saved_config().dump(2) << '\n';
    file.close();
    if (!file) throw Error("[pretrained] cannot write '" + (to / "config.json").string() + "'; check the disk");
  } catch (const fs::filesystem_error& problem) {
    throw Error("[pretrained] cannot write to '" + to.string() + "' (" + problem.code().message() +
                "); give another directory");
  }
  write_safetensors((to / "model.safetensors").string(), tensors);
}

}  // namespace remat::pretrained
