// pretrained/safetensors.h -- files of named tensors, as Hugging Face's library safetensors writes them.
//
//   u64 size of the header
//   header  JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
//   bytes   of every tensor, row-major, without gaps; offsets count from here
//
// Numbers are little-endian, the header's size is at most 100 MB.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::support {
class ReplacementFile;
}

namespace remat::pretrained {

/// Where a tensor is in its file.
struct TensorEntry {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< byte of the file
  int64_t bytes = 0;
};

/// A file that is open for reading. Not thread-safe.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error where the file cannot be read, or is no whole file of this format: its
  /// tensors must cover all bytes behind the header, each once, and have a type of PyTorch's.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  /// A new tensor on the CPU. Throws Error for a name that is not in the file, and where reading fails.
  at::Tensor read(const std::string& name) const;

 private:
  std::string path_;
  int file_;
  std::map<std::string, TensorEntry> entries_;
};

/// Writes the tensors (strided, of any device) in the order given, with the metadata {"format": "pt"} that transformers
/// asks for. What was at `path` is replaced when all is written, and stays where that fails: then Error is thrown, as
/// it is for a type that the format does not have.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors);

/// The same to an open file, which is not put in its place. False with the reason in errno where the system refuses.
bool write_safetensors(support::ReplacementFile& file, const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace remat::pretrained
