#include "pretrained/staged_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <remat/error.h>

namespace remat::pretrained {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopiedBytes = 1 << 20;

}  // namespace

StagedFiles::StagedFiles(fs::path directory) : directory_(std::move(directory)) {
  try {
    make(directory_);
  } catch (...) {  // there is no destructor yet
    std::error_code ignored;
    std::for_each(made_.rbegin(), made_.rend(), [&](const auto& made) { fs::remove(made, ignored); });
    throw;
  }
}

StagedFiles::~StagedFiles() {
  files_.clear();  // removes the parts
  if (committed_) return;
  std::error_code ignored;
  std::for_each(made_.rbegin(), made_.rend(), [&](const auto& made) { fs::remove(made, ignored); });  // only if empty
}

void StagedFiles::make(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return;
  if (const auto parent = directory.parent_path(); !parent.empty() && parent != directory) make(parent);
  if (fs::create_directory(directory, error)) made_.push_back(directory);
  if (error) fail(directory, error.message());
}

void StagedFiles::add(const std::string& name, const std::function<bool(support::ReplacementFile& file)>& write) {
  const fs::path path = directory_ / name;
  std::error_code error;
  if (path.parent_path() != directory_) {
    if (fs::is_symlink(path.parent_path(), error)) fail(path, "its folder is a link");
    make(path.parent_path());
  }
  if (!fs::is_symlink(path, error) && fs::is_directory(path, error)) fail(path, "it is a directory");
  auto& file = *files_.emplace_back(std::make_unique<support::ReplacementFile>());
  errno = 0;
  if (!file.open(path.string()) || !write(file) || !file.sync()) fail(path);
}

void StagedFiles::add_text(const std::string& name, const std::string& text) {
  add(name, [&](support::ReplacementFile& file) { return file.write(text.data(), text.size()); });
}

void StagedFiles::add_copy(const std::string& name, const fs::path& from) {
  std::ifstream source(from, std::ios::binary);
  const auto cannot_read = [&] {
    throw Error("[pretrained] cannot read '" + from.string() + "', which belongs to the model; check its permissions");
  };
  if (!source) cannot_read();
  add(name, [&](support::ReplacementFile& file) {
    std::vector<char> piece(kCopiedBytes);
    while (source) {
      source.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      if (!file.write(piece.data(), static_cast<size_t>(source.gcount()))) return false;
    }
    if (source.bad()) cannot_read();
    return true;
  });
}

void StagedFiles::commit() {
  for (const auto& file : files_) {
    if (!file->commit()) fail(file->path());
    committed_ = true;
  }
}

void StagedFiles::fail(const fs::path& path, const std::string& reason) const {
  throw Error("[pretrained] cannot write '" + path.string() + "' (" + reason + "); " +
              (committed_ ? "save again" : "what was in that directory is unchanged") +
              "; free some space or give another directory");
}

void StagedFiles::fail(const fs::path& path) const { fail(path, std::strerror(errno)); }

}  // namespace remat::pretrained
