#include "session/disk_tier.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>

namespace remat {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int64_t kMostPieces = 8;

double cpu_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Of the process but for this thread: while that waits, the file's threads, mostly.
double others_cpu_seconds() { return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID); }

/// Measures what the file's threads take for each byte, beside the bandwidth: the computation lacks that.
FormCosts measure(tiers::SpillFile& file, const Disk& disk) {
  const int64_t piece_bytes = std::min(kPieceBytes, disk.bytes);
  const int64_t count = std::clamp<int64_t>(disk.bytes / piece_bytes, 1, kMostPieces);
  // Not of zeros: disks may spare themselves those.
  std::vector<uint64_t> contents(static_cast<size_t>((piece_bytes + 7) / 8));
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = i * 0x9e3779b97f4a7c15U;
  std::vector<std::shared_ptr<tiers::Piece>> pieces;
  const auto check = [&](bool done, const tiers::Piece& piece) {
    if (!done) {
      throw Error("[session] the disk cannot be used: " + piece.error() + "; name another directory, or fewer bytes");
    }
  };
  const double before = others_cpu_seconds();
  for (int64_t i = 0; i < count; ++i) pieces.push_back(file.write(contents.data(), piece_bytes));
  for (const auto& piece : pieces) check(piece->wait_written(), *piece);
  const double written = others_cpu_seconds();
  for (const auto& piece : pieces) {
    piece->begin_read(contents.data());
    check(piece->wait_read(), *piece);
  }
  const double read = others_cpu_seconds();
  const auto bytes = static_cast<double>(count * piece_bytes);
  const tiers::SpillCounts counts = file.counts();
  const auto seconds = [bytes](double compute, double copy) {
    return FormCosts::Seconds{.compute = std::max(0.0, compute) / bytes, .copy = copy / bytes};
  };
  return {.out = seconds(written - before, counts.write_seconds), .in = seconds(read - written, counts.read_seconds)};
}

}  // namespace

DiskTier::DiskTier(const Disk& disk) : file(std::make_shared<tiers::SpillFile>(disk.directory, disk.bytes)) {
  tier = {.costs = measure(*file, disk), .bytes = disk.bytes};
}

}  // namespace remat
