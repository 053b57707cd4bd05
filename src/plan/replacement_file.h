// src/plan/replacement_file.h -- a file that takes the place of another when it is whole: written beside it, then
// moved.
#pragma once

#include <cstddef>
#include <string>

namespace remat {

/// Its functions return false, with the reason in errno, where the system refuses. Until commit() what was there before
/// stays as it is; without commit() what was written is removed.
class ReplacementFile {
 public:
  ReplacementFile() = default;
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  /// `path`: the file to replace, or to create; a link there would be replaced itself. Makes a new file beside it, of a
  /// name that nobody has.
  bool open(const std::string& path);
  bool write(const void* data, size_t size);
  /// Returns when the file is in its place and on the disk.
  bool commit();

  /// The file beside `path`.
  const std::string& part() const { return part_; }

 private:
  std::string path_, part_;
  int file_ = -1;
  bool exists_ = false;
};

}  // namespace remat
