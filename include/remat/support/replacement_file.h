// remat/support/replacement_file.h -- replaces a file atomically: writes a new file beside it, and renames it when it
// is complete.
#pragma once

#include <cstddef>
#include <string>

namespace remat::support {

/// The functions return false on failure, with the reason in errno. Until commit() the old file is unchanged; without
/// commit() the new file is removed.
class ReplacementFile {
 public:
  ReplacementFile() = default;
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  /// Creates a new file beside `path`, the file to replace or to create, under an unused name. A symbolic link at
  /// `path` is replaced itself.
  bool open(const std::string& path);
  bool write(const void* data, size_t size);
  /// Returns when all of the new file is on the disk: commit() needs no more space.
  bool sync();
  /// Returns when the file is at `path` and on the disk.
  bool commit();

  /// Removes what processes that were killed before commit() left beside `path`. None may be writing it.
  static void remove_unfinished(const std::string& path);

  /// The file beside `path`.
  const std::string& part() const { return part_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_, part_;
  int file_ = -1;
  bool exists_ = false;
  bool synced_ = false;
};

}  // namespace remat::support
