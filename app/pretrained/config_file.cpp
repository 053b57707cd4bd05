#include "pretrained/config_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <remat/error.h>

#include "common/json_object.h"

namespace remat::pretrained {
namespace {

constexpr uintmax_t kMostBytes = 16 << 20;
constexpr uint64_t kMostCount = 1 << 24;
constexpr size_t kMostDepth = 32;

}  // namespace

ConfigFile::ConfigFile(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  // First what it is: opening a pipe would wait for who writes to it.
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, error)) file.open(path, std::ios::binary);
  if (!file.is_open()) {
    throw Error("[pretrained] cannot read '" + path.string() +
                "'; give a directory of Hugging Face's form: config.json, model.safetensors and a tokenizer's files");
  }
  if (std::filesystem::file_size(path, error) > kMostBytes) refuse("is larger than 16 MiB");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  try {
    json_ = common::read_json_object(text, kMostDepth);
  } catch (const common::JsonProblem& problem) {
    refuse(problem.text);
  }
}

std::string ConfigFile::text(const std::string& name) const {
  if (!has(name)) refuse("has no \"" + name + "\"");
  const auto& value = json_.at(name);
  if (!value.is_string()) refuse("has " + value.dump() + " for \"" + name + "\", which is no string");
  return value.get<std::string>();
}

int64_t ConfigFile::count(const std::string& name) const {
  if (!has(name)) refuse("has no \"" + name + "\"");
  const auto& value = json_.at(name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 || value.get<uint64_t>() > kMostCount) {
    refuse("has " + value.dump() + " for \"" + name + "\", which is no number from 1 to " + std::to_string(kMostCount));
  }
  return value.get<int64_t>();
}

std::optional<int64_t> ConfigFile::nullable_count(const std::string& name, std::optional<int64_t> otherwise) const {
  if (!json_.contains(name)) return otherwise;
  return has(name) ? std::optional(count(name)) : std::nullopt;
}

std::optional<double> ConfigFile::nullable_number(const std::string& name, std::optional<double> otherwise) const {
  if (!json_.contains(name)) return otherwise;
  return has(name) ? std::optional(number(name, 0)) : std::nullopt;
}

std::optional<int64_t> ConfigFile::token(const std::string& name, std::optional<int64_t> otherwise) const {
  if (!json_.contains(name)) return otherwise;
  const auto& value = json_.at(name);
  if (value.is_null() || value == -1) return std::nullopt;
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMostCount) {
    refuse("has " + value.dump() + " for \"" + name + "\", which is no token");
  }
  return value.get<int64_t>();
}

double ConfigFile::number(const std::string& name, double otherwise) const {
  if (!has(name)) return otherwise;
  const auto& value = json_.at(name);
  if (!value.is_number()) refuse("has " + value.dump() + " for \"" + name + "\", which is no number");
  return value.get<double>();
}

bool ConfigFile::flag(const std::string& name, bool otherwise) const {
  if (!has(name)) return otherwise;
  if (!json_.at(name).is_boolean()) refuse("has " + json_.at(name).dump() + " for \"" + name + "\", not true or false");
  return json_.at(name).get<bool>();
}

ConfigFile ConfigFile::object(const std::string& name) const {
  if (!has(name) || !json_.at(name).is_object()) refuse("has no object \"" + name + "\"");
  return {path_, json_.at(name)};
}

std::vector<std::string> ConfigFile::labels() const {
  std::vector<std::string> names;
  if (!has("id2label") || !json_.at("id2label").is_object()) return {};
  const auto& given = json_.at("id2label");
  for (size_t i = 0; i < given.size(); ++i) {
    const auto name = given.find(std::to_string(i));
    if (name == given.end() || !name->is_string()) return {};
    names.push_back(name->get<std::string>());
  }
  return names;
}

void ConfigFile::expect(const std::string& name, std::initializer_list<nlohmann::json> known) const {
  if (!has(name) || std::ranges::find(known, json_.at(name)) != known.end()) return;
  refuse("has " + json_.at(name).dump() + " for \"" + name + "\", which remat's model of that kind cannot compute");
}

void ConfigFile::refuse(const std::string& problem) const {
  throw Error("[pretrained] '" + path_.string() + "' " + problem + "; give a directory of another model, or mend it");
}

}  // namespace remat::pretrained
