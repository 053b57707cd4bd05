#include "cli/checkpoint_lock.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <remat/error.h>

#include <remat/support/replacement_file.h>
#include "cli/special_file.h"

namespace remat::cli {
namespace {

// One file for all links to a checkpoint.
std::string lock_path(const std::string& path) { return follow_links(path) + ".lock"; }

bool try_lock(int file) {
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

// The run that held the lock before may have removed the file since we opened it.
bool is_still_at(int file, const std::string& path) {
  struct stat ours = {}, there = {};
  return fstat(file, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

std::string holder(int file) {
  char digits[32] = {};
  const auto count = pread(file, digits, sizeof digits - 1, 0);
  const long process = count > 0 ? std::strtol(digits, nullptr, 10) : 0;
  return process > 0 ? " (process " + std::to_string(process) + ")" : "";
}

}  // namespace

CheckpointLock::CheckpointLock(const std::string& path) : file_path_(lock_path(path)), holder_(getpid()) {
  if (is_special_file(path)) return;  // refused elsewhere
  while (true) {
    file_ = open(file_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return;
    if (!try_lock(file_)) {
      const bool held = errno == EWOULDBLOCK;
      const auto who = held ? holder(file_) : "";
      close(file_);
      file_ = -1;
      if (!held) return;
      throw Error("[checkpoint] '" + path + "' is another run's that goes on" + who +
                  "; wait for its end, stop it, or give another path with --checkpoint");
    }
    if (is_still_at(file_, file_path_)) break;
    close(file_);
  }
  support::ReplacementFile::remove_unfinished(follow_links(path));  // nobody writes it: the lock is held
  const auto process = std::to_string(getpid()) + "\n";
  if (ftruncate(file_, 0) != 0 || write(file_, process.data(), process.size()) < 0) return;  // only for the message
}

CheckpointLock::~CheckpointLock() {
  if (file_ < 0 || getpid() != holder_) return;
  unlink(file_path_.c_str());  // first: whoever opens it from now on makes a new one
  close(file_);
}

}  // namespace remat::cli
