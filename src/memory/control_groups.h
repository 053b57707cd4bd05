// src/memory/control_groups.h -- the control groups that hold this process, versions 1 and 2, and their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace remat::memory {

struct ControlGroup {
  /// What a version calls the files of its memory controller.
  struct Files {
    const char *limit, *usage;
    const char* inactive;  ///< in memory.stat: cached pages of files, of the groups inside too, not used of late
  };

  std::filesystem::path directory;
  int version = 2;  ///< 1 or 2

  Files files() const {
    return version == 2 ? Files{"memory.max", "memory.current", "inactive_file"}
                        : Files{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  }
};

/// Returns the groups that may have a memory controller: those that hold this process and all around them, of each
/// hierarchy the outermost first. They need not exist.
///
/// `membership`: /proc/self/cgroup; `mount`: /sys/fs/cgroup. A group's limit also binds the groups inside it, so every
/// group up to the mount counts. Inside a container the path that `membership` names is often not visible; what binds
/// then stands at the mount itself.
std::vector<ControlGroup> control_groups(const std::filesystem::path& membership, const std::filesystem::path& mount);

/// Returns the number that a file begins with. Empty: there is no such file, or it begins with something else ("max"),
/// with 0 or less, or with what does not fit.
std::optional<int64_t> read_count(const std::filesystem::path& file);

}  // namespace remat::memory
