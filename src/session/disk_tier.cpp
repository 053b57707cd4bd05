#include "session/disk_tier.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>

namespace remat {
namespace {

struct Copies {
  int64_t count = 0;
  int64_t bytes = 0;  ///< of each
};
constexpr Copies kLarge{8, int64_t{8} << 20}, kSmall{64, int64_t{64} << 10};

double cpu_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Of the process but for this thread: while that waits, the file's threads, mostly.
double others_cpu_seconds() { return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID); }

/// As far as the disk's limit goes.
Copies within(Copies copies, const Disk& disk) {
  copies.bytes = std::min(copies.bytes, disk.bytes);
  copies.count = std::clamp<int64_t>(disk.bytes / copies.bytes, 1, copies.count);
  return copies;
}

struct Taken {
  FormCosts::Seconds out, in;  ///< of all copies together
};

using Contents = std::array<std::vector<uint64_t>, 2>;

/// What the file's threads take of the processor is what the computation lacks.
Taken run(tiers::SpillFile& file, Contents& contents, const Copies& copies) {
  std::vector<std::shared_ptr<tiers::Piece>> pieces;
  const auto check = [&](bool done, const tiers::Piece& piece) {
    if (!done) {
      throw Error("[session] the disk cannot be used: " + piece.error() + "; name another directory, or fewer bytes");
    }
  };
  const tiers::SpillCounts earlier = file.counts();
  const double begin = others_cpu_seconds();
  for (int64_t i = 0; i < copies.count; ++i) pieces.push_back(file.write(contents[i % 2].data(), copies.bytes));
  for (const auto& piece : pieces) check(piece->wait_written(), *piece);
  const double written = others_cpu_seconds();
  for (int64_t i = 0; i < copies.count; ++i) {  // two at a time, as a step does
    pieces[i]->begin_read(contents[i % 2].data());
    if (i > 0) check(pieces[i - 1]->wait_read(), *pieces[i - 1]);
  }
  check(pieces.back()->wait_read(), *pieces.back());
  const double read = others_cpu_seconds();
  const tiers::SpillCounts counts = file.counts();
  return {.out = {std::max(0.0, written - begin), counts.write_seconds - earlier.write_seconds},
          .in = {std::max(0.0, read - written), counts.read_seconds - earlier.read_seconds}};
}

Tier measure(tiers::SpillFile& file, const Disk& disk) {
  const Copies large = within(kLarge, disk), small = within(kSmall, disk);
  // Not of zeros: disks may spare themselves those.
  std::vector<uint64_t> some(static_cast<size_t>((large.bytes + 7) / 8));
  for (size_t i = 0; i < some.size(); ++i) some[i] = i * 0x9e3779b97f4a7c15U;
  Contents contents{some, some};
  // The first time a file's blocks are written, the file system has to find them; every step writes them again.
  run(file, contents, large);
  const Taken bytes = run(file, contents, large), copies = run(file, contents, small);
  const auto per_byte = [&](const FormCosts::Seconds& all) {
    const auto count = static_cast<double>(large.count * large.bytes);
    return FormCosts::Seconds{all.compute / count, all.copy / count};
  };
  const FormCosts costs{.out = per_byte(bytes.out), .in = per_byte(bytes.in)};
  const auto of_bytes = static_cast<double>(small.count * small.bytes) * (costs.out.compute + costs.in.compute);
  const double beside = std::max(0.0, copies.out.compute + copies.in.compute - of_bytes);
  return {.costs = costs, .copy_seconds = beside / static_cast<double>(2 * small.count), .bytes = disk.bytes};
}

}  // namespace

DiskTier::DiskTier(const Disk& disk) : file(std::make_shared<tiers::SpillFile>(disk.directory, disk.bytes)) {
  tier = measure(*file, disk);
}

}  // namespace remat
