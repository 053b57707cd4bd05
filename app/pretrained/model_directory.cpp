#include "pretrained/model_directory.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "pretrained/finite.h"
#include "pretrained/staged_files.h"

namespace remat::pretrained {
namespace {

namespace fs = std::filesystem;

// Of one file that is copied: vocabularies are smaller, weights in other forms larger.
constexpr uintmax_t kMostCopiedBytes = 256 << 20;
constexpr uintmax_t kMostTextBytes = 16 << 20;  // of a license, a README
constexpr const char* kChatTemplates = "additional_chat_templates";
constexpr size_t kMostNamed = 3;  // of the tensors that have no place

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

struct Source {
  std::string entry;
  bool transposed = false;
};

void copy(const Checkpoint& weights, const std::string& entry, bool transposed, const at::Tensor& parameter) {
  at::Tensor theirs = weights.read(entry);
  if (transposed && theirs.dim() == 2) theirs = theirs.t();
  if (theirs.sizes() != parameter.sizes()) {
    throw Error("[pretrained] tensor '" + entry + "' is of type " + c10::toString(theirs.scalar_type()) +
                " and shape " + support::list_text(theirs.sizes()) + ", config.json says " +
                support::list_text(parameter.sizes()) + "; get a directory whose files belong together");
  }
  parameter.copy_(theirs);
}

void stage_copies(const fs::path& from, StagedFiles& staged) {
  for (const auto& file : fs::directory_iterator(from)) {
    const auto name = file.path().filename().string();
    if (is_copied(file.path())) staged.add_copy(name, file.path());
    if (name != kChatTemplates || !file.is_directory()) continue;
    for (const auto& chat : fs::directory_iterator(file.path())) {
      if (!is_copied(chat.path())) continue;
      staged.add_copy(std::string(kChatTemplates) + "/" + chat.path().filename().string(), chat.path());
    }
  }
}

/// Weights that an older save left in several files: whoever reads the index first would get those.
void remove_stale_shards(const fs::path& directory) {
  const fs::path index = directory / kIndex;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(index, error))) return;
  std::set<std::string> shards;
  try {
    const ConfigFile old(index);
    for (const auto& file : old.json().at("weight_map")) shards.insert(file.get<std::string>());
  } catch (const std::exception&) {  // it is no index: only it goes
  }
  fs::remove(index, error);
  for (const auto& shard : shards) {
    const bool beside = fs::path(shard).filename() == shard && shard.ends_with(".safetensors");
    if (beside && shard != kWeights) fs::remove(directory / shard, error);
  }
}

}  // namespace

bool is_copied(const fs::path& file) {
  const auto name = file.filename().string();
  const auto ending = file.extension();
  std::error_code error;
  if (!fs::is_regular_file(file, error) || name == "config.json" || name.ends_with(".index.json")) return false;
  const auto bytes = fs::file_size(file, error);
  if (error) return false;
  if (ending == ".json" || ending == ".txt" || ending == ".model" || ending == ".jinja")
    return bytes <= kMostCopiedBytes;
  constexpr std::array<std::string_view, 4> kTexts = {"LICENSE", "NOTICE", "USE_POLICY", "README.md"};
  return ending != ".py" && bytes <= kMostTextBytes &&
         std::ranges::any_of(kTexts, [&](std::string_view text) { return name.starts_with(text); });
}

ModelDirectory::ModelDirectory(fs::path path, LoadOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      config_(path_ / "config.json"),
      family_(family_of(config_)),
      description_(family_.describe(config_, options_)),
      weights_(path_) {
  if (config_.has("quantization_config")) {
    throw Error(
        "[pretrained] '" + (path_ / "config.json").string() +
        "' has a \"quantization_config\", and remat trains weights in float32, float16 or bfloat16; give the model "
        "as it was before it was quantized, or convert it (transformers: model.dequantize(), save_pretrained())");
  }
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

std::string ModelDirectory::layer_name(const std::string& ours) const {
  auto name = name_of(ours + ".weight").name;
  replace_end(name, ".weight", "");
  return name;
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

void ModelDirectory::check_types(const std::vector<std::string>& used) const {
  for (const auto& name : used) {
    const auto type = weights_.entries().at(name).type;
    if (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) continue;
    throw Error("[pretrained] tensor '" + name + "' in '" + path_.string() + "' is of type " + c10::toString(type) +
                ", and remat reads float32, float16 and bfloat16; give the model as it was before it was quantized, or "
                "convert it (transformers: model.dequantize(), model.float(), save_pretrained())");
  }
}

bool ModelDirectory::is_ignored(const std::string& name) const {
  return std::ranges::any_of(family_.ignored, [&](std::string_view pattern) {
    return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name.starts_with(pattern);
  });
}

/// transformers ties nothing that the weights say is different.
void ModelDirectory::check_tied(const std::string& name, const std::string& to) const {
  if (!weights_.read(name).equal(weights_.read(to))) {
    config_.refuse("ties '" + name + "' to '" + to + "', and the weights beside it have other numbers for them");
  }
}

void ModelDirectory::check_places(const std::vector<std::string>& used) const {
  std::set<std::string> without_place;
  for (const auto& [name, entry] : weights_.entries()) {
    if (entry.bytes == 0 || std::ranges::binary_search(used, name)) continue;  // nothing of an empty one is lost
    const auto tied = find_entry(std::string(family_.embedding));
    if (options_.task != Task::kClassify && tied && name == family_.tied) {
      check_tied(name, *tied);
    } else if (!is_ignored(name)) {
      without_place.insert(name);
    }
  }
  if (without_place.empty()) return;
  std::string names;
  size_t count = 0;
  for (const auto& name : without_place) {
    if (++count <= kMostNamed) names += (count > 1 ? ", '" : "'") + name + "'";
  }
  if (count > kMostNamed) names += ", ...";
  throw Error("[pretrained] the weights in '" + path_.string() + "' have " + std::to_string(count) +
              " tensors that the model of config.json has no place for (" + names +
              "); get a directory whose files belong together, and merge adapters before");
}

void ModelDirectory::refuse_missing(const std::string& name) const {
  throw Error("[pretrained] the weights in '" + path_.string() + "' have no tensor '" + name +
              "', which config.json calls for; get a directory whose files belong together");
}

std::shared_ptr<zoo::Model> ModelDirectory::load() const {
  std::shared_ptr<void> place = options_.place_weights ? options_.place_weights() : nullptr;
  auto model = description_.make();
  place.reset();
  const auto may_be_missing = missing();
  std::vector<std::string> used, beside_factors, counts;
  std::vector<std::pair<Source, at::Tensor>> copies;
  for (const auto& item : model->named_parameters()) {
    const TheirName theirs = name_of(item.key());
    if (const auto entry = find_entry(theirs.name)) {
      used.push_back(*entry);
      copies.emplace_back(Source{*entry, theirs.transposed}, item.value());
      if (classifier_of(theirs.name)) beside_factors.push_back(item.key());
    } else if (std::ranges::find(may_be_missing, theirs.name) != may_be_missing.end()) {
      beside_factors.push_back(item.key());
    } else {
      refuse_missing(theirs.name);
    }
  }
  for (const auto& item : model->named_buffers()) {  // running statistics of BatchNorm
    const TheirName theirs = name_of(item.key());
    const auto entry = find_entry(theirs.name);
    const bool is_count = item.value().scalar_type() == at::kLong;
    if (!entry && is_count) continue;  // which nothing is computed of
    if (!entry) refuse_missing(theirs.name);
    (is_count ? counts : used).push_back(*entry);
    copies.emplace_back(Source{*entry, false}, item.value());
  }
  check_types(used);
  used.insert(used.end(), counts.begin(), counts.end());
  std::ranges::sort(used);
  check_places(used);
  const torch::NoGradGuard no_grad;
  FiniteCheck check;
  for (const auto& [source, parameter] : copies) {
    copy(weights_, source.entry, source.transposed, parameter);
    if (parameter.is_floating_point()) check.look_at(source.entry, parameter);
  }
  if (!check.all_finite()) {
    throw Error("[pretrained] the weights in '" + path_.string() +
                "' have NaN or infinite elements, which no loss comes of: " + check.found() +
                "; get the files again, or give a model whose training did not diverge");
  }
  if (options_.lora) {
    zoo::add_lora(*model, *options_.lora, beside_factors, [this](const auto& ours) { return layer_name(ours); });
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

void ModelDirectory::save(const zoo::Model& model, const fs::path& to,
                          const std::function<void(const std::string& part)>& on_part) const {
  std::error_code error;
  if (fs::equivalent(path_, to, error)) {
    throw Error("[pretrained] '" + to.string() + "' is where the model came from; give another directory");
  }
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, parameter] : zoo::merged_parameters(model)) {
    const TheirName theirs = name_of(name);
    const bool transposed = theirs.transposed && parameter.dim() == 2;
    tensors.emplace_back(theirs.name, transposed ? parameter.t() : parameter);
  }
  for (const auto& item : model.named_buffers()) tensors.emplace_back(name_of(item.key()).name, item.value());
  StagedFiles staged(to);
  staged.add(kWeights, [&](support::ReplacementFile& file) {  // first: what needs the space
    if (on_part) on_part(file.part());
    return write_safetensors(file, tensors);
  });
  staged.add_text("config.json", saved_config().dump(2) + '\n');
  try {
    stage_copies(path_, staged);
  } catch (const fs::filesystem_error& problem) {
    throw Error("[pretrained] cannot read '" + path_.string() + "' (" + problem.code().message() +
                "), whose other files belong to the model; check the path");
  }
  staged.commit();
  remove_stale_shards(to);
}

}  // namespace remat::pretrained
