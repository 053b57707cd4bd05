#include "cli/replacement_file.h"

#include <cerrno>
#include <filesystem>

#include "cli/interrupt.h"
#include "cli/special_file.h"

namespace remat::cli {

ReplacementFile::~ReplacementFile() {
  file_.reset();  // first: until it is gone, a signal has to remove it
  if (exists_) keep_when_interrupted();
}

bool ReplacementFile::open(const std::string& path) {
  const auto place = follow_links(path);
  if (std::error_code ignored; std::filesystem::is_symlink(place, ignored)) {
    errno = ELOOP;
    return false;
  }
  if (!file_->open(place)) return false;
  exists_ = true;
  remove_when_interrupted(part());
  return true;
}

bool ReplacementFile::commit() {
  if (!file_->commit()) return false;
  exists_ = false;
  keep_when_interrupted();
  return true;
}

}  // namespace remat::cli
