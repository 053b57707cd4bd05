#include <remat/support/replacement_file.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace remat::support {
namespace {

constexpr const char* kPart = ".part-";  // then the process, and a number where that has several

// rename() is durable only once the directory that holds the name is.
void sync_directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

}  // namespace

ReplacementFile::~ReplacementFile() {
  const int error = errno;  // the reason of the failure
  if (file_ >= 0) close(file_);
  if (exists_) unlink(part_.c_str());
  errno = error;
}

bool ReplacementFile::open(const std::string& path) {
  path_ = path;
  const auto prefix = path_ + kPart + std::to_string(getpid());
  for (int i = 0; file_ < 0; ++i) {
    part_ = prefix;
    if (i > 0) part_.append("-").append(std::to_string(i));
    file_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) return false;
  }
  exists_ = true;
  synced_ = false;
  return true;
}

bool ReplacementFile::write(const void* data, size_t size) {
  synced_ = false;
  for (auto next = static_cast<const char*>(data); size > 0;) {
    const auto written = ::write(file_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReplacementFile::sync() {
  synced_ = synced_ || fsync(file_) == 0;
  return synced_;
}

bool ReplacementFile::commit() {
  if (!sync() || std::rename(part_.c_str(), path_.c_str()) != 0) return false;
  exists_ = false;
  sync_directory_of(path_);
  return true;
}

void ReplacementFile::remove_unfinished(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path file = path;
  const std::string prefix = file.filename().string() + kPart;
  std::error_code ignored;
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool unfinished = name.starts_with(prefix) && name.size() > prefix.size() &&
                            name.find_first_not_of("0123456789-", prefix.size()) == std::string::npos;
    if (unfinished && entry.is_regular_file(ignored)) fs::remove(entry.path(), ignored);
  }
}

}  // namespace remat::support
