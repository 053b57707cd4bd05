// remat/disk.h -- a directory that values may be moved to.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace remat {

/// Room on a disk: for SessionOptions::disk. A value type.
struct Disk {
  std::string directory;  ///< where one file without a name is made; it must exist
  int64_t bytes = 0;      ///< that the file may have, more than 0

  Disk(std::string directory, int64_t bytes);  ///< throws Error for an empty name, and for no bytes
  /// What parse() reads, so that `SessionOptions{.disk = "100GiB:/scratch"}` needs no call.
  template <class Text>  // NOLINTNEXTLINE(google-explicit-constructor): text shall be a disk
  requires(std::convertible_to<const Text&, std::string_view> && !std::is_null_pointer_v<Text>) Disk(const Text& text)
      : Disk(parse(text)) {}

  /// Reads "100GiB:/scratch": bytes as Budget::parse() reads them, a colon, and a directory. Throws Error on anything
  /// else.
  static Disk parse(std::string_view text);

  bool operator==(const Disk&) const = default;
};

}  // namespace remat
