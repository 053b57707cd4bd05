// src/tiers/unnamed_file.h -- a file that no directory names: it is gone when the process ends, however it ends.
#pragma once

#include <cstdint>
#include <string>

namespace remat::tiers {

/// A new, empty file in a directory. Reads and writes go past the page cache where the file system has that (O_DIRECT);
/// where it has not, what they leave there is dropped. Functions may be called by several threads at a time.
class UnnamedFile {
 public:
  /// Of offsets, lengths and addresses that is_direct() files are read and written with, in bytes.
  static constexpr int64_t kAlignment = 4096;

  /// Throws Error where no file can be made in `directory`.
  explicit UnnamedFile(const std::string& directory);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  const std::string& directory() const { return directory_; }
  /// Open as long as this lives.
  int descriptor() const { return file_; }
  /// Do reads and writes need alignment?
  bool is_direct() const { return is_direct_; }

  /// These return why they failed, or nothing: all bytes were written, or read.
  std::string write(const void* data, int64_t bytes, int64_t offset);
  std::string read(void* to, int64_t bytes, int64_t offset);
  /// To be called after writing and reading: keeps the page cache from growing.
  void leave_page_cache(int64_t bytes, int64_t offset);

 private:
  std::string directory_;
  int file_ = -1;
  bool is_direct_ = false;
};

}  // namespace remat::tiers
