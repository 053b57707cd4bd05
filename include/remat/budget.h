// remat/budget.h -- how many bytes a step may use.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace remat {

class PoolState;

/// A limit on the tensor bytes alive on the device at any moment of a step.
///
/// Five kinds:
///  - bytes: everything counts, parameters, gradients and optimizer state included.
///  - percent: a share of the plain step's *activation peak*, that is, of its peak above the bytes that were alive when
///    the step began. What plain needs is not known before one step has run. The first step keeps what is alive above
///    that under the same share of what plain would have taken by then, and so under the share of its peak in the end;
///    where not enough can be evicted, it takes what it needs and is not refused. From
///    the second step on it is a share of what the largest step so far took, and the limit of a step that takes more
///    than that rises to the share of its own peak, as in a first step; so where not enough can be evicted, one that is
///    larger than all before, or unlike them, takes what it needs. At 100 % the limit has on top the generator states
///    (5 KB each) that replays of random operators would begin with, and, as far as the steps before took it, up to a
///    64th for what replays would read though plain has freed it.
///    All that holds where one step runs at a time: beside other threads' steps, a step under a percentage may be
///    refused at any time.
///  - device limit (the default): the memory of the device, or the container's limit where that is smaller.
///  - pressure: what the machine and the container have left as the step begins, whoever else takes memory. Looked up
///    before each step; what is short is lowered at once, and raised again only when there has been more for a while. A
///    step that cannot do with it takes what it needs, up to the device limit, after dropping all that can be dropped:
///    it is not refused before that. On the CPU, for sessions of one process (without ranks).
///  - pool: a share of the bytes of a Pool (remat/pool.h), which all sessions that have the same pool share.
///
/// A value type: immutable, cheap to copy, safe to share between threads.
class Budget {
 public:
  /// What the limit is given as.
  enum class Kind : uint8_t {
    kDeviceLimit,  ///< the memory of the device, or the container's limit
    kBytes,        ///< a number of bytes
    kPercent,      ///< a share of the plain step's activation peak
    kPressure,     ///< what the machine and the container have left before each step
    kPool,         ///< what a pool grants to each step
  };

  /// The device's (or container's) limit.
  Budget() = default;
  /// What parse() reads, so that `SessionOptions{.budget = "40%"}` needs no call. Throws as parse() does.
  template <class Text>  // NOLINTNEXTLINE(google-explicit-constructor): text shall be a budget
  requires(std::convertible_to<const Text&, std::string_view> && !std::is_null_pointer_v<Text>) Budget(const Text& text)
      : Budget(parse(text)) {}

  /// `count` bytes. Throws Error unless `count` > 0.
  static Budget bytes(int64_t count);
  /// `share` percent of the plain step's activation peak. Throws Error unless 0 < share <= 100.
  static Budget percent(double share);

  /// What the machine and the container have left before each step.
  static Budget pressure();

  /// Reads "2GiB", "1500MB", "1.5 GiB", "40%", "1073741824", "1e9", "device", "pressure". Units: B, kB, MB, GB, TB
  /// (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024); letter case does not matter; a lone K, M, G or T means
  /// the power of 1024. Throws Error on anything else, negative and overflowing numbers included, and on a number of up
  /// to 100 without a unit: "40" is no budget in bytes, and 40 % is written "40%".
  static Budget parse(std::string_view text);
  /// The same; throws Error for a null pointer, as std::getenv() gives for a variable that is not set.
  static Budget parse(const char* text);

  /// Which of the five it is.
  Kind kind() const noexcept { return kind_; }
  /// The number of bytes, of kPool the whole pool's; 0 unless kind() is kBytes or kPool.
  int64_t byte_count() const noexcept { return bytes_; }
  /// The percentage in (0, 100]; 0 unless kind() is kPercent.
  double share() const noexcept { return share_; }

  /// What the sessions of a pool have in common; null unless kind() is kPool.
  const std::shared_ptr<PoolState>& pool() const noexcept { return pool_; }

  /// "2.00 GiB", "40%", "device limit", "pressure" or "a pool of 2.00 GiB", for people: rounded as format_bytes()
  /// rounds, where byte_count() and share() are exact.
  std::string to_string() const;

  bool operator==(const Budget&) const = default;

 private:
  friend class Pool;

  Kind kind_ = Kind::kDeviceLimit;
  int64_t bytes_ = 0;
  double share_ = 0;
  std::shared_ptr<PoolState> pool_;
};

/// "1.46 GiB": a byte count for people, in powers of 1024 and with three significant digits.
std::string format_bytes(int64_t bytes);

/// "1.46 GiB (1567663718 bytes)": for messages whose reader may want to give the number back.
std::string format_exact_bytes(int64_t bytes);

}  // namespace remat
