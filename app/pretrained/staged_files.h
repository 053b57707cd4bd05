// pretrained/staged_files.h -- files that replace those of a directory together: all are written beside their places
// first.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remat/support/replacement_file.h>

namespace remat::pretrained {

/// Until commit() no file of the directory has changed; without it, what was written and the directories that were made
/// for it are removed. Every function throws Error with the system's reason where that refuses.
class StagedFiles {
 public:
  /// Creates `directory` where there is none.
  explicit StagedFiles(std::filesystem::path directory);
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// A file that `write` fills; it returns false with the reason in errno. `name` may be one of a folder in the
  /// directory. A link of that name is replaced, not what it leads to.
  void add(const std::string& name, const std::function<bool(support::ReplacementFile& file)>& write);
  void add_text(const std::string& name, const std::string& text);
  /// The bytes of `from`, with the permissions of a new file.
  void add_copy(const std::string& name, const std::filesystem::path& from);

  /// Puts the files in their places, in the order in which they were added.
  void commit();

 private:
  void make(const std::filesystem::path& directory);
  [[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) const;
  [[noreturn]] void fail(const std::filesystem::path& path) const;  ///< the reason is in errno

  std::filesystem::path directory_;
  std::vector<std::filesystem::path> made_;  ///< directories, the outermost first
  std::vector<std::unique_ptr<support::ReplacementFile>> files_;
  bool committed_ = false;
};

}  // namespace remat::pretrained
