#include "pretrained/checkpoint.h"

#include <set>

#include <remat/error.h>

#include "pretrained/config_file.h"

namespace remat::pretrained {

Checkpoint::Checkpoint(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / kWeights)) {  // where there are both, transformers reads this one
    add(directory / kWeights);
    return;
  }
  if (!std::filesystem::exists(directory / kIndex)) {
    throw Error("[pretrained] '" + directory.string() + "' has neither " + kWeights + " nor " + kIndex +
                "; save the model in that format (transformers: save_pretrained())");
  }
  const ConfigFile index(directory / kIndex);
  if (!index.has("weight_map") || !index.json().at("weight_map").is_object()) index.refuse("has no \"weight_map\"");
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.json().at("weight_map").items()) {
    const bool names_file =
        file.is_string() && !file.get<std::string>().empty() && file.get<std::string>().find('\0') == std::string::npos;
    // What the index names lies beside it, and nowhere else.
    if (!names_file || std::filesystem::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      index.refuse("names " + file.dump() + " as the file of '" + tensor + "'");
    }
    names.insert(file.get<std::string>());
  }
  for (const auto& name : names) add(directory / name);
  for (const auto& [tensor, file] : index.json().at("weight_map").items()) {
    if (!entries_.contains(tensor)) {
      index.refuse("names '" + tensor + "', and '" + file.get<std::string>() + "' has no such tensor");
    }
  }
}

void Checkpoint::add(const std::filesystem::path& path) {
  const auto& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path.string()));
  for (const auto& [name, entry] : file.entries()) {
    if (!entries_.emplace(name, entry).second) {
      throw Error("[pretrained] '" + path.string() + "' has tensor '" + name +
                  "', which another file of the directory has too; get the files again");
    }
    homes_.emplace(name, &file);
  }
}

at::Tensor Checkpoint::read(const std::string& name) const {
  const auto found = homes_.find(name);
  if (found == homes_.end()) throw Error("[pretrained] the weights have no tensor '" + name + "'; get the files again");
  return found->second->read(name);
}

int64_t Checkpoint::numel() const {
  int64_t total = 0;
  for (const auto& [name, entry] : entries_) {
    total += entry.bytes / static_cast<int64_t>(c10::elementSize(entry.type));
  }
  return total;
}

}  // namespace remat::pretrained
