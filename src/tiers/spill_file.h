// src/tiers/spill_file.h -- memory that moves to a file and comes back, in the background.
//
//   SpillFile file("/scratch", 8 << 30);
//   auto piece = file.write(data, bytes);  // begins
//   if (piece->wait_written()) {           // else the memory is still there, and piece->error() says why
//     ...                                  // the memory may be freed
//     piece->begin_read(memory);           // begins
//     if (!piece->wait_read()) throw Error(piece->error());
//   }
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

namespace remat::tiers {

class SpillFile;

/// Bytes that are in a file, or on their way. Functions may be called by several threads; one reads at a time.
class Piece {
 public:
  /// Gives its place in the file back, once what is in progress is over; what has not begun does not begin.
  ~Piece();
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  int64_t bytes() const noexcept { return bytes_; }

  /// Returns when the bytes are in the file, or will not be: false if they could not be written, or there was no room.
  bool wait_written() noexcept;
  /// Begins to read the bytes into `to`, which stays allocated until wait_read() has returned. Where they are still
  /// being written, they are read after that. They stay in the file, to be read again.
  void begin_read(void* to) noexcept;
  /// Returns when the bytes are there: false if they could not be read, or are others than were written, by their
  /// checksum; then the memory holds anything.
  bool wait_read() noexcept;
  /// Is what was begun over, so that no wait takes time?
  bool is_idle() const noexcept;
  /// Why it returned false: "12 bytes could not be written to a file in "/scratch": No space left on device".
  std::string error() const;

 private:
  friend class SpillFile;
  struct State;
  explicit Piece(int64_t bytes, std::unique_ptr<State> state);

  const int64_t bytes_;
  const std::unique_ptr<State> state_;
};

/// What a file has done so far.
struct SpillCounts {
  int64_t written_bytes = 0, read_bytes = 0;  ///< that were asked for, and done
  /// While at least one write was in progress, at least one read. Bytes by them are the bandwidth.
  double write_seconds = 0, read_seconds = 0;
  double waited_seconds = 0;  ///< of all wait_...()
  int64_t bytes_in_use = 0;   ///< in pieces, each rounded up to 4096
  int64_t file_bytes = 0;     ///< with the gaps that pieces left
};

/// A file without a name, so that a process that is killed leaves nothing, and two threads that read and write it,
/// which begin with the first piece. Each holds a buffer of 4 MiB. The page cache does not grow where the file system
/// has O_DIRECT, and by little elsewhere. Thread-safe. In a child after fork() nothing can be written or read.
class SpillFile {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  /// Throws Error where no file can be made in `directory`. The file never has more than `limit_bytes`.
  explicit SpillFile(const std::string& directory, int64_t limit_bytes = kNoLimit);
  /// Pieces may outlive it: the file is closed with the last of them.
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Begins to write `bytes` from `data`, which stays allocated and unchanged until wait_written() has returned or the
  /// piece is destroyed. Where that is impossible, wait_written() returns false at once.
  std::shared_ptr<Piece> write(const void* data, int64_t bytes);

  SpillCounts counts() const;
  const std::string& directory() const;
  /// Does it go past the page cache?
  bool is_direct() const;

 private:
  friend class Piece;
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace remat::tiers
