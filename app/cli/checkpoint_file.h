// cli/checkpoint_file.h -- a file that is whole or is not there, and knows when it is damaged.
//
//   "rematckp"  u32 version  u32 size of about
//   about       JSON: what the checkpoint is of, readable without its payload
//   payload     what the trainer wrote
//   trailer     u64 size of payload  u128 XXH3 of everything before it  "rematend"
//
// Numbers are little-endian. Sizes and hash stand at the end because a payload of gigabytes is written in one pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace remat::cli {

/// Writes beside the final path; commit() puts the file in its place. Until then, and when anything fails, what was
/// there before stays as it is. Every function throws Error when the system refuses.
class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& path, const nlohmann::json& about);
  ~CheckpointWriter();  // without commit(): removes what was written
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void append(const void* data, size_t size);
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Opens a checkpoint and verifies all of it. Throws Error where it is missing, of another format, cut off or damaged.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& path);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const nlohmann::json& about() const { return about_; }
  size_t payload_size() const { return payload_size_; }
  /// Copies `size` bytes of the payload from `offset` on; returns how many there were.
  size_t read(size_t offset, void* data, size_t size) const;

 private:
  void verify(size_t file_size);
  size_t read_file(size_t offset, void* data, size_t size) const;

  std::string path_;
  int file_ = -1;
  nlohmann::json about_;
  size_t payload_begin_ = 0;
  size_t payload_size_ = 0;
};

/// Throws Error unless a checkpoint could be written at `path` now: called before hours of training, not after.
void check_checkpoint_path(const std::string& path);

}  // namespace remat::cli
