#include "zoo/lora.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fnmatch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

using Layers = std::vector<std::pair<std::string, std::shared_ptr<LinearImpl>>>;

const std::vector<std::string> kQueriesAndValues = {"qkv", "query", "value"};

Layers linear_layers(const Model& model) {
  Layers layers;
  for (const auto& item : model.named_modules()) {
    if (auto layer = std::dynamic_pointer_cast<LinearImpl>(item.value())) layers.emplace_back(item.key(), layer);
  }
  return layers;
}

/// Is it `name`, or its end after a dot?
bool fits(std::string pattern, std::string name) {
  std::ranges::replace(pattern, '.', '/');  // as paths of files: their '*' stops at a slash
  std::ranges::replace(name, '.', '/');
  for (size_t from = 0; from != std::string::npos; from = name.find('/', from)) {
    if (from > 0) ++from;
    if (fnmatch(pattern.c_str(), name.c_str() + from, FNM_PATHNAME | FNM_NOESCAPE) == 0) return true;
  }
  return false;
}

/// "block*.qkv, block*.proj": each name once, without the numbers of blocks.
std::string list_names(const std::vector<std::string>& names) {
  std::vector<std::string> different;
  for (const auto& name : names) {
    std::string general;
    for (const char c : name) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (!digit) general += c;
      if (digit && !general.ends_with('*')) general += '*';
    }
    if (std::ranges::find(different, general) == different.end()) different.push_back(general);
  }
  std::string list;
  for (const auto& name : different) list += (list.empty() ? "" : ", ") + name;
  return list;
}

Layers choose(const Layers& layers, const LoraConfig& config, const NameOf& name_of) {
  const bool usual = config.layers.empty();
  std::vector<std::string> names;
  for (const auto& [name, layer] : layers) names.push_back(usual ? name : name_of(name));
  std::vector<bool> chosen(layers.size());
  for (const auto& pattern : usual ? kQueriesAndValues : config.layers) {
    bool any = false;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!fits(pattern, names[i])) continue;
      chosen[i] = any = true;
    }
    if (any || usual) continue;
    throw Error("[lora] no linear layer fits '" + pattern + "'; there are " + list_names(names) +
                ", and the end of a name will do");
  }
  Layers result;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (chosen[i]) result.push_back(layers[i]);
  }
  if (!result.empty()) return result;
  throw Error("[lora] this model has no layers of queries and values; name others: there are " + list_names(names));
}

void check_rank(const Layers& layers, int64_t rank, const NameOf& name_of) {
  if (rank < 1) throw Error("[lora] the rank is " + std::to_string(rank) + "; give 1 or more");
  for (const auto& [name, layer] : layers) {
    const int64_t most = std::min(layer->options.in_features(), layer->options.out_features());
    if (rank <= most) continue;
    throw Error("[lora] the rank is " + std::to_string(rank) + ", and layer '" + name_of(name) + "' is " +
                std::to_string(layer->options.in_features()) + " x " + std::to_string(layer->options.out_features()) +
                "; give " + std::to_string(most) + " or less");
  }
}

}  // namespace

void add_lora(Model& model, const LoraConfig& config, const std::vector<std::string>& trained, const NameOf& name_of) {
  const auto all = linear_layers(model);
  if (all.empty()) throw Error("[lora] this model has no linear layers in its blocks; train all of it, without LoRA");
  const auto layers = choose(all, config, name_of);
  check_rank(layers, config.rank, name_of);
  for (auto& item : model.named_parameters()) {
    const bool stays = item.key().starts_with("classify.") || std::ranges::find(trained, item.key()) != trained.end();
    item.value().set_requires_grad(stays);
  }
  for (const auto& [name, layer] : layers) {
    layer->add_factors(config.rank, config.alpha / static_cast<double>(config.rank));
  }
}

Layers lora_layers(const Model& model) {
  auto layers = linear_layers(model);
  std::erase_if(layers, [](const auto& layer) { return !layer.second->has_factors(); });
  return layers;
}

std::vector<std::pair<std::string, at::Tensor>> merged_parameters(const Model& model) {
  std::map<std::string, at::Tensor> merged;
  for (const auto& [name, layer] : lora_layers(model)) merged[name + ".weight"] = layer->merged_weight();
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& item : model.named_parameters()) {
    if (item.key().ends_with(".lora_a") || item.key().ends_with(".lora_b")) continue;
    const auto found = merged.find(item.key());
    result.emplace_back(item.key(), found == merged.end() ? item.value() : found->second);
  }
  return result;
}

}  // namespace remat::zoo
