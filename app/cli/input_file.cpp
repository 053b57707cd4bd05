#include "cli/input_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <remat/budget.h>
#include <remat/error.h>

namespace remat::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr size_t kPieceBytes = 1 << 20;
constexpr milliseconds kBetweenLooks{20};
constexpr milliseconds kMostWait{10'000};  // for who writes to a pipe

/// Opened at once, also where it is a pipe to which nobody writes yet.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : file_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)), piece_(kPieceBytes) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return file_ >= 0; }
  bool is_pipe() const {
    struct stat status = {};
    return fstat(file_, &status) == 0 && S_ISFIFO(status.st_mode);
  }

  /// Appends what can be read at once; false at the end, and with the reason in errno where reading fails.
  bool read_piece(std::string& text) {
    ssize_t got = 0;
    do {
      got = read(file_, piece_.data(), piece_.size());
    } while (got < 0 && errno == EINTR);
    if (got == 0) errno = 0;
    if (got > 0) text.append(piece_.data(), static_cast<size_t>(got));
    return got > 0;
  }

  /// From now on reading waits for what comes.
  void wait_from_now_on() { fcntl(file_, F_SETFL, fcntl(file_, F_GETFL) & ~O_NONBLOCK); }

 private:
  int file_;
  std::vector<char> piece_;
};

/// A pipe that nobody writes to has ended, as one has that everybody has closed.
/// False where nobody came to write.
bool wait_for_writer(OpenFile& pipe, std::string& text) {
  for (milliseconds waited{0}; !pipe.read_piece(text); waited += kBetweenLooks) {
    if (errno != 0) break;  // EAGAIN: somebody may write; others come again
    if (waited >= kMostWait) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

}  // namespace

std::string read_input(const std::string& path, const InputKind& kind) {
  const auto fail = [&](const std::string& problem) {
    throw Error("[" + kind.what + "] " + problem + "; " + kind.remedy);
  };
  const std::string most = "more than " + format_exact_bytes(kind.most_bytes);
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) fail("'" + path + "' is a directory");
  if (fs::is_character_file(status) || fs::is_block_file(status)) fail("'" + path + "' is a device, not a file");
  OpenFile file(path);
  if (!file.is_open()) fail("cannot read '" + path + "' (" + std::strerror(errno) + ")");
  std::string text;
  if (const auto size = fs::file_size(path, error); !error && fs::is_regular_file(status)) {
    const auto bytes = static_cast<int64_t>(size);
    if (bytes > kind.most_bytes) fail("'" + path + "' has " + format_exact_bytes(bytes) + ", " + most);
    try {
      text.reserve(size);
    } catch (const std::exception&) {
      fail("'" + path + "' has " + format_exact_bytes(bytes) + ", more than there is memory for");
    }
  }
  if (file.is_pipe() && !wait_for_writer(file, text)) {
    fail("'" + path + "' is a pipe, and nobody has written to it in " + std::to_string(kMostWait.count() / 1000) +
         " s: start first what does");
  }
  file.wait_from_now_on();
  // Pipes and files of /proc do not say beforehand how much there is.
  const std::string too_long = "'" + path + "' has " + most;
  do {
    if (static_cast<int64_t>(text.size()) > kind.most_bytes) fail(too_long);
  } while (file.read_piece(text));
  if (errno != 0) fail("reading '" + path + "' failed (" + std::strerror(errno) + ")");
  return text;
}

}  // namespace remat::cli
