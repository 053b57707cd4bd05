#include "cli/special_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <filesystem>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;   // as the system's own limit
constexpr int kMostWait = 1000;  // milliseconds, once a signal was noted

bool is_link(const std::string& path) {
  std::error_code ignored;
  return fs::is_symlink(path, ignored);
}

int open_special_file(const std::string& path) {
  if (const auto number = open_file_number(path)) {
    std::fflush(stdout);  // what was printed before comes first
    return fcntl(*number, F_DUPFD_CLOEXEC, 0);
  }
  return open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | (interrupted() != 0 ? O_NONBLOCK : 0));
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    if (!wait_until_writable(file)) return false;
    // As much as a pipe takes without waiting.
    const auto written = write(file, text.data() + done, std::min<size_t>(text.size() - done, PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

std::optional<int> open_file_number(const std::string& path) {
  const fs::path place(path);
  std::error_code error, own_error;
  const auto directory = fs::canonical(place.parent_path(), error);
  if (error || directory != fs::canonical("/proc/self/fd", own_error) || own_error) return std::nullopt;
  const auto name = place.filename().string();
  int number = -1;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (problem != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::string follow_links(const std::string& path) {
  auto place = path;
  for (int links = 0; links < kMostLinks && !open_file_number(place) && is_link(place); ++links) {
    std::error_code error;
    const auto target = fs::read_symlink(place, error);
    if (error) break;
    place = fs::path(place).parent_path() / target;
  }
  return place;
}

bool is_special_file(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && (!fs::is_regular_file(status) || open_file_number(follow_links(path)));
}

bool can_write_special_file(const std::string& path) {
  const auto number = open_file_number(follow_links(path));
  if (!number) return access(path.c_str(), W_OK) == 0;
  const int flags = fcntl(*number, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) errno = EBADF;
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

bool wait_until_writable(int file) {
  pollfd ready{file, POLLOUT, 0};
  while (true) {
    const int count = poll(&ready, 1, kMostWait);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (count == 0 && interrupted() != 0) break;
  }
  errno = ETIMEDOUT;
  return false;
}

bool write_special_file(const std::string& path, const std::string& text) {
  const int file = open_special_file(follow_links(path));
  if (file < 0) return false;
  const bool written = write_all(file, text);
  const int error = errno;
  const bool closed = close(file) == 0;
  if (!written) errno = error;
  return written && closed;
}

}  // namespace remat::cli
