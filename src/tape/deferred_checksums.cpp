#include "tape/deferred_checksums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>
#include <c10/core/StreamGuard.h>

#include "device/device.h"
#include "device/streams.h"
#include "device/unobserved.h"
#include "memory/ledger.h"
#include "operators/operator_info.h"
#include "pytorch/raise.h"

namespace remat {
namespace {

constexpr int64_t kWord = sizeof(int64_t);
constexpr int64_t kLine = 64, kSampleStep = int64_t{16} * 1024;  // bytes
constexpr int64_t kResults = 64;
constexpr int64_t kLeastSums = 64;

int64_t power_of_two(double least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::ceil(std::max(least, 1.0)))));
}

/// Odd, and no sums of small multiples of each other, as a series would be.
at::Tensor make_weights(int64_t count, const at::TensorOptions& options) {
  constexpr int64_t kFirst = 0x2545F4914F6CDD1D, kSecond = 0x5851F42D4C957F2D;  // any that are large and odd
  at::Tensor weights = at::arange(1, count + 1, options).mul_(kFirst);
  return weights.bitwise_xor_(at::bitwise_right_shift(weights, 29)).mul_(kSecond).bitwise_or_(1);
}

}  // namespace

DeferredChecksums::~DeferredChecksums() { clear(); }

void DeferredChecksums::clear() {
  const memory::FrozenPlain frozen;
  comparisons_.clear();
  taken_.clear();
  lanes_.clear();
  bytes_ = 0;
}

/// The sums of one range, in the order in which they are added.
class DeferredChecksums::Sum {
 public:
  /// A block of words: `sizes` and `strides` in words, from the byte `at` on.
  struct Block {
    int64_t at = 0;
    std::array<int64_t, 3> sizes{};
    std::array<int64_t, 3> strides{};
    int64_t sums() const { return sizes[0] + sizes[1] + sizes[2]; }
  };
  /// What is a sum itself, each element of it.
  struct Rest {
    int64_t at = 0, size = 0;
    at::ScalarType type = at::kByte;
  };

  Sum(ByteRange range, bool sample) {
    const int64_t begin = (range.begin + kWord - 1) / kWord * kWord;
    const int64_t end = range.end / kWord * kWord;
    if (end <= begin) {
      add_rest(range.begin, range.end);
      return;
    }
    add_rest(range.begin, begin);
    add_rest(end, range.end);
    if (sample && end - begin > kSampleStep) {
      add_lines(begin, (end - begin) / kSampleStep);
      add_rest(end - kLine, end, at::kLong);
    } else {
      add_words(begin, (end - begin) / kWord);
    }
  }

  /// How many sums there are.
  int64_t size() const {
    int64_t size = 0;
    for (const Block& block : blocks_) size += block.sums();
    for (const Rest& rest : rests_) size += rest.size;
    return size;
  }

  /// Into `sums`, which has room for them.
  void run(const c10::StorageImpl& storage, const at::Tensor& sums) const {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(storage.data()));
    const auto options = sums.options();
    int64_t place = 0;
    const auto next = [&](int64_t count) { return sums.narrow(0, std::exchange(place, place + count), count); };
    for (const Block& block : blocks_) {
      const at::Tensor words = at::from_blob(data + block.at, block.sizes, block.strides, options);
      constexpr std::array<std::array<int64_t, 2>, 3> kOthers = {{{1, 2}, {0, 2}, {0, 1}}};
      for (size_t i = 0; i < 3; ++i) {
        at::Tensor sum = next(block.sizes[i]);
        at::sum_out(sum, words, kOthers[i]);
      }
    }
    for (const Rest& rest : rests_) {
      next(rest.size).copy_(at::from_blob(data + rest.at, {rest.size}, options.dtype(rest.type)));
    }
  }

 private:
  void add_rest(int64_t begin, int64_t end, at::ScalarType type = at::kByte) {
    if (end > begin) rests_.push_back({begin, (end - begin) / static_cast<int64_t>(c10::elementSize(type)), type});
  }
  /// All of them, as a cube, a square for what is over, and the rest.
  void add_words(int64_t begin, int64_t words) {
    const int64_t edge = power_of_two(std::cbrt(static_cast<double>(words)));
    const int64_t slabs = words / (edge * edge), rows = words / edge - slabs * edge;
    if (slabs > 0) blocks_.push_back({begin, {slabs, edge, edge}, {edge * edge, edge, 1}});
    const int64_t square = begin + slabs * edge * edge * kWord;
    if (rows > 0) blocks_.push_back({square, {1, rows, edge}, {rows * edge, edge, 1}});
    add_rest(square + rows * edge * kWord, begin + words * kWord, at::kLong);
    add_rest(begin, begin + kWord, at::kLong);  // where all signs change, those of lines of even length cancel out
  }
  /// The first of each sample's step.
  void add_lines(int64_t begin, int64_t lines) {
    constexpr int64_t kStep = kSampleStep / kWord, kWords = kLine / kWord;
    const int64_t edge = power_of_two(std::sqrt(static_cast<double>(lines)));
    const int64_t slabs = lines / edge, over = lines - slabs * edge;
    if (slabs > 0) blocks_.push_back({begin, {slabs, edge, kWords}, {edge * kStep, kStep, 1}});
    if (over > 0) blocks_.push_back({begin + slabs * edge * kSampleStep, {1, over, kWords}, {over * kStep, kStep, 1}});
  }

  std::vector<Block> blocks_;
  std::vector<Rest> rests_;
};

uint32_t DeferredChecksums::lane_of(const c10::Stream& stream) {
  const auto found =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.stream == stream; });
  const auto index = static_cast<uint32_t>(found - lanes_.begin());
  if (found == lanes_.end())
    lanes_.push_back({.stream = stream, .weights = {}, .sums = {}, .mixed = {}, .results = {}});
  return index;
}

void DeferredChecksums::provide(Lane& lane, int64_t sums) {
  const auto options = at::TensorOptions(at::kLong).device(lane.stream.device());
  if (!lane.sums.defined() || lane.sums.size(0) < sums) {
    const int64_t size = std::max(kLeastSums, power_of_two(static_cast<double>(sums)));
    lane.weights = make_weights(size, options);
    const int64_t before = lane.sums.defined() ? lane.sums.size(0) : 0;
    lane.sums = at::empty({size}, options);
    lane.mixed = at::empty({size}, options);
    bytes_ += 3 * (size - before) * kWord;
  }
  if (lane.count % kResults == 0 && lane.count / kResults == lane.results.size()) {
    lane.results.push_back(at::empty({kResults}, options));
    bytes_ += kResults * kWord;
  }
}

uint64_t DeferredChecksums::take(const c10::StorageImpl& storage, ByteRange range, bool sample) {
  const c10::Device device = storage.device();
  const auto address = reinterpret_cast<uintptr_t>(storage.data());
  const auto& kind = device::kind_of(device);
  if (!device::has_streams(device) || address % kWord != 0 || kind.is_captured()) return 0;
  try {
    const Unobserved kernel_alone;
    const memory::FrozenPlain frozen;
    const memory::Dispensable dispensable;
    const c10::OptionalDeviceGuard on_device(device);
    const uint32_t index = lane_of(device::stream_of_thread(device));
    Lane& lane = lanes_[index];
    const Sum sum(range, sample);
    const int64_t size = sum.size();
    provide(lane, size);
    const at::Tensor sums = lane.sums.narrow(0, 0, size);
    sum.run(storage, sums);
    // The highest bit of a sum is that of a sign, of which a product would leave but whether it is odd.
    at::Tensor mixed = lane.mixed.narrow(0, 0, size);
    at::bitwise_right_shift_out(mixed, sums, 33).bitwise_xor_(sums).mul_(lane.weights.narrow(0, 0, size));
    at::Tensor result = lane.results.back().select(0, lane.count % kResults);
    at::sum_out(result, mixed, at::IntArrayRef{0});
    taken_.push_back({index, lane.count++, sample});
    return taken_.size();
  } catch (...) {  // no room, or an operator that the device has not
    return 0;
  }
}

bool DeferredChecksums::expect(uint64_t checksum, const c10::StorageImpl& storage, ByteRange range, std::string message,
                               const OperatorInfo* replayed) {
  const uint64_t now = take(storage, range, taken_[checksum - 1].sample);
  if (now == 0) return false;
  comparisons_.push_back({checksum, now, std::move(message), replayed});
  if (at_once_) resolve(/*completed=*/true);
  return true;
}

void DeferredChecksums::resolve(bool completed) {
  at_once_ = true;
  const std::vector<Comparison> comparisons = std::exchange(comparisons_, {});
  if (comparisons.empty() || !completed) return;
  const Unobserved kernel_alone;
  std::vector<std::vector<int64_t>> results;
  for (const Lane& lane : lanes_) {
    const c10::StreamGuard in_stream(lane.stream);
    std::vector<int64_t>& of_lane = results.emplace_back(lane.results.size() * kResults);
    for (size_t i = 0; i < lane.results.size(); ++i) {
      at::from_blob(of_lane.data() + i * kResults, {kResults}, at::kLong).copy_(lane.results[i]);
    }
  }
  const auto result = [&](uint64_t checksum) {
    const Taken& taken = taken_[checksum - 1];
    return results[taken.lane][taken.place];
  };
  std::vector<const Comparison*> failed;
  for (const Comparison& each : comparisons) {
    if (result(each.before) != result(each.now)) {
      failed.push_back(&each);
    } else if (each.replayed != nullptr) {
      ++each.replayed->repeated;
    }
  }
  if (failed.empty()) return;
  // Of an input that has changed, operators that repeat give other results too.
  const auto input = std::ranges::find(failed, nullptr, &Comparison::replayed);
  if (input != failed.end()) raise(Error((*input)->message));
  for (const Comparison* each : failed) each->replayed->varies = true;
  raise(Error(failed.front()->message));
}

}  // namespace remat
