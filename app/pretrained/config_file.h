// pretrained/config_file.h -- the config.json of a model: named values of a known kind and size, or an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace remat::pretrained {

/// All functions throw Error, which names the file, for a value of another kind than asked for, and where a name that
/// has no default is missing. A name with the value null counts as missing.
class ConfigFile {
 public:
  /// Throws Error where the file cannot be read, is larger than 16 MiB or is no JSON object.
  explicit ConfigFile(const std::filesystem::path& path);

  bool has(const std::string& name) const { return json_.contains(name) && !json_.at(name).is_null(); }
  std::string text(const std::string& name) const;
  /// From 1 to 2^24: of layers, heads, tokens, numbers of a vector.
  int64_t count(const std::string& name) const;
  int64_t count(const std::string& name, int64_t otherwise) const { return has(name) ? count(name) : otherwise; }
  /// As count() and number(); nothing where the name is there with the value null.
  std::optional<int64_t> nullable_count(const std::string& name, std::optional<int64_t> otherwise) const;
  std::optional<double> nullable_number(const std::string& name, std::optional<double> otherwise) const;
  /// The number of a token; nothing where the name is there with the value null or -1.
  std::optional<int64_t> token(const std::string& name, std::optional<int64_t> otherwise) const;
  double number(const std::string& name, double otherwise) const;
  bool flag(const std::string& name, bool otherwise) const;
  /// The object of that name, with which messages name the same file.
  ConfigFile object(const std::string& name) const;
  /// Names of classes, in the order of their numbers; empty where "id2label" is missing or names no classes from 0 on.
  std::vector<std::string> labels() const;
  /// Throws Error unless `name` is missing or one of `known`: remat's model computes nothing else.
  void expect(const std::string& name, std::initializer_list<nlohmann::json> known) const;
  [[noreturn]] void refuse(const std::string& problem) const;

  const nlohmann::json& json() const { return json_; }

 private:
  ConfigFile(std::filesystem::path path, nlohmann::json json) : path_(std::move(path)), json_(std::move(json)) {}

  std::filesystem::path path_;
  nlohmann::json json_;
};

}  // namespace remat::pretrained
