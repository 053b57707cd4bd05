// pretrained/checkpoint.h -- the weights of a directory: one file of tensors, or several and an index.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pretrained/safetensors.h"

namespace remat::pretrained {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Not thread-safe.
class Checkpoint {
 public:
  /// Opens model.safetensors, or, where there is none, the files that model.safetensors.index.json names. Throws Error
  /// where they are missing or damaged, or the index names a tensor that its file does not have.
  explicit Checkpoint(const std::filesystem::path& directory);

  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  /// As SafetensorsFile::read().
  at::Tensor read(const std::string& name) const;
  /// Of all tensors together.
  int64_t numel() const;

 private:
  void add(const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> homes_;
  std::map<std::string, TensorEntry> entries_;
};

}  // namespace remat::pretrained
