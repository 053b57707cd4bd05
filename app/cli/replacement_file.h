// cli/replacement_file.h -- a replacement file of a command: links stay, and signals leave nothing behind.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <remat/support/replacement_file.h>

namespace remat::cli {

/// Where a signal ends the process, what was written is removed too.
class ReplacementFile {
 public:
  ReplacementFile() = default;
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  /// A link at `path` stays, and its target is replaced.
  bool open(const std::string& path);
  bool write(const void* data, size_t size) { return file_->write(data, size); }
  bool commit();

  const std::string& part() const { return file_->part(); }

 private:
  std::optional<support::ReplacementFile> file_{std::in_place};
  bool exists_ = false;
};

}  // namespace remat::cli
