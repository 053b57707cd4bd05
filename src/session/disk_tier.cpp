#include "session/move_tier.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <remat/error.h>

#include "session/measured_copies.h"
#include "tiers/file_target.h"
#include "tiers/spill_file.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

/// Something that keeps all threads of a step busy, which wait for each other as those of its operators do. What copies
/// take of it is more than the processor's time for them: of a machine that is shared, the disk's part is nobody's.
class Computation {
 public:
  Computation() : numbers_(static_cast<size_t>(at::get_num_threads()) * kOfThread, 1.0F) {
    std::vector<double> seen(kCalls);
    for (double& seconds : seen) {
      const auto begin = Clock::now();
      run();
      seconds = seconds_since(begin);
    }
    std::ranges::nth_element(seen, seen.begin() + kCalls / 2);
    seconds_ = seen[kCalls / 2];
  }
  void run() {
    at::parallel_for(0, at::get_num_threads(), 1, [this](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread) {
        float* const own = numbers_.data() + thread * static_cast<int64_t>(kOfThread);
        for (int times = 0; times < kTimes; ++times) {
          for (size_t i = 0; i < kOfThread; ++i) own[i] = 0.999F * own[i] + 0.001F;
        }
      }
    });
  }
  /// That run() takes where nothing else happens.
  double seconds() const { return seconds_; }

 private:
  static constexpr size_t kOfThread = size_t{1} << 18U;
  static constexpr int kTimes = 8, kCalls = 31;
  std::vector<float> numbers_;
  double seconds_ = 0;
};

class Measurement {
 public:
  Measurement(tiers::SpillFile& file, const Disk& disk)
      : file_(file),
        disk_(disk),
        large_(kLargeCopies.within(disk.bytes)),
        small_(kSmallCopies.within(disk.bytes)),
        contents_(static_cast<size_t>(large_.count * large_.bytes + 7) / 8) {
    // Not of zeros: disks may spare themselves those.
    for (size_t i = 0; i < contents_.size(); ++i) contents_[i] = i * 0x9e3779b97f4a7c15U;
  }

  Tier run() {
    // The first time a file's blocks are written, the file system has to find them; every step writes them again.
    there_and_back(large_);
    FormCosts large = there_and_back(large_), small = there_and_back(small_);
    for (int round = 1; round < kMeasuredRounds; ++round) {
      large = least(large, there_and_back(large_));
      small = least(small, there_and_back(small_));
    }
    const auto per_byte = [this](const FormCosts::Seconds& all) {
      return FormCosts::Seconds{all.compute / large_.all_bytes(), all.copy / large_.all_bytes()};
    };
    const FormCosts costs{.out = per_byte(large.out), .in = per_byte(large.in)};
    return {.costs = costs,
            .copy_seconds =
                seconds_of_copy(small_, small.out.compute + small.in.compute, costs.out.compute + costs.in.compute),
            .bytes = disk_.bytes};
  }

 private:
  static FormCosts least(const FormCosts& a, const FormCosts& b) {
    const auto of = [](const FormCosts::Seconds& x, const FormCosts::Seconds& y) {
      return FormCosts::Seconds{std::min(x.compute, y.compute), std::min(x.copy, y.copy)};
    };
    return {.out = of(a.out, b.out), .in = of(a.in, b.in)};
  }

  /// In seconds of all the copies together.
  FormCosts there_and_back(const MeasuredCopies& copies) {
    std::vector<std::shared_ptr<tiers::Piece>> pieces;
    char* const memory = reinterpret_cast<char*>(contents_.data());
    const tiers::SpillCounts before = file_.counts();
    const double out = lost_to(pieces, [&] {
      for (int64_t i = 0; i < copies.count; ++i) {
        pieces.push_back(file_.write(memory + i * copies.bytes, copies.bytes));
      }
    });
    for (const auto& piece : pieces) check(piece->wait_written(), *piece);
    const double in = lost_to(pieces, [&] {
      for (int64_t i = 0; i < copies.count; ++i) pieces[i]->begin_read(memory + i * copies.bytes);
    });
    for (const auto& piece : pieces) check(piece->wait_read(), *piece);
    const tiers::SpillCounts after = file_.counts();
    return {.out = {.compute = out, .copy = after.write_seconds - before.write_seconds},
            .in = {.compute = in, .copy = after.read_seconds - before.read_seconds}};
  }

  /// The seconds that the computation loses until none of the pieces is copied any more.
  template <class Begin>
  double lost_to(const std::vector<std::shared_ptr<tiers::Piece>>& pieces, const Begin& begin_copies) {
    const auto begin = Clock::now();
    begin_copies();
    double computed = 0;
    while (!std::ranges::all_of(pieces, [](const auto& piece) { return piece->is_idle(); })) {
      computation_.run();
      computed += computation_.seconds();
    }
    return std::max(0.0, seconds_since(begin) - computed);
  }

  static void check(bool done, const tiers::Piece& piece) {
    if (done) return;
    throw Error("[session] the disk cannot be used: " + piece.error() + "; name another directory, or fewer bytes");
  }

  tiers::SpillFile& file_;
  const Disk& disk_;
  const MeasuredCopies large_, small_;
  std::vector<uint64_t> contents_;
  Computation computation_;
};

}  // namespace

MoveTier disk_tier(const Disk& disk) {
  const auto file = std::make_shared<tiers::SpillFile>(disk.directory, disk.bytes);
  return {.target = std::make_shared<tiers::FileTarget>(file), .tier = Measurement(*file, disk).run()};
}

}  // namespace remat
