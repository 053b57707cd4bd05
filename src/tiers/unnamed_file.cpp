#include "tiers/unnamed_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <remat/error.h>

namespace remat::tiers {
namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

/// Where the file system makes no files without names, the name is removed at once. -1 and errno on failure.
int open_unnamed(const std::string& directory) {
  const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string path = directory + "/remat-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

/// Turns direct I/O on if a block can be written and read with it. Some file systems accept the flag and refuse the
/// I/O.
bool turn_direct(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (::fcntl(file, F_SETFL, flags | O_DIRECT) != 0) return false;
  constexpr auto kBytes = static_cast<size_t>(UnnamedFile::kAlignment);
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBytes, kBytes), &std::free);
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block.get(), 0, kBytes);
  // Other errors, as of a full disk, have nothing to do with the flag: who writes next is told.
  const bool is_refused = ::pwrite(file, block.get(), kBytes, 0) < 0 && errno == EINVAL;
  if (!is_refused && !(::pread(file, block.get(), kBytes, 0) < 0 && errno == EINVAL)) return true;
  ::fcntl(file, F_SETFL, flags);
  return false;
}

}  // namespace

UnnamedFile::UnnamedFile(const std::string& directory) : directory_(directory), file_(open_unnamed(directory)) {
  if (file_ < 0) {
    throw Error("[spill file] no file can be made in \"" + directory + "\": " + reason_of(errno) +
                "; name a directory that is there and can be written");
  }
  is_direct_ = turn_direct(file_);
}

UnnamedFile::~UnnamedFile() { ::close(file_); }

std::string UnnamedFile::write(const void* data, int64_t bytes, int64_t offset) {
  const char* from = static_cast<const char*>(data);
  int64_t written = 0;
  while (written < bytes) {
    int64_t now = ::pwrite(file_, from + written, static_cast<size_t>(bytes - written), offset + written);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return reason_of(errno);
    if (is_direct_ && now < bytes - written) now -= now % kAlignment;
    if (now == 0) return "only " + std::to_string(written) + " bytes were taken";
    written += now;
  }
  return {};
}

std::string UnnamedFile::read(void* to, int64_t bytes, int64_t offset) {
  char* const into = static_cast<char*>(to);
  int64_t got = 0;
  while (got < bytes) {
    int64_t now = ::pread(file_, into + got, static_cast<size_t>(bytes - got), offset + got);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return reason_of(errno);
    if (is_direct_ && now < bytes - got) now -= now % kAlignment;
    if (now == 0) return "the file ends after " + std::to_string(got) + " bytes";
    got += now;
  }
  return {};
}

void UnnamedFile::leave_page_cache(int64_t bytes, int64_t offset) {
  if (is_direct_) return;
  // Pages that are not on the disk yet stay.
  ::sync_file_range(file_, offset, bytes,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(file_, offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace remat::tiers
