// src/memory/limits.h -- how much memory the machine, the container and the process have. All figures in bytes.
#pragma once

#include <cstdint>
#include <filesystem>

namespace remat::memory {

/// The machine's physical memory.
int64_t physical_memory();

/// The smallest memory limit of the control groups that hold this process, versions 1 and 2, or INT64_MAX.
///
/// `membership`: /proc/self/cgroup; `mount`: /sys/fs/cgroup. A group's limit also binds the groups inside it, so every
/// group up to the mount counts. Inside a container the path that `membership` names is often not visible; the limit
/// then stands at the mount itself.
int64_t cgroup_limit(const std::filesystem::path& membership = "/proc/self/cgroup",
                     const std::filesystem::path& mount = "/sys/fs/cgroup");

/// The least of RLIMIT_AS and RLIMIT_DATA (`ulimit -v`, `ulimit -d`); INT64_MAX where none is set.
int64_t address_space_limit() noexcept;

/// What the process may map, and has mapped.
struct AddressSpace {
  int64_t limit = INT64_MAX;  ///< INT64_MAX: none, and the rest is not read
  int64_t used = 0;
  const char* name = "";  ///< of the limit, as the shell says it

  int64_t left() const { return limit == INT64_MAX ? INT64_MAX : (used < limit ? limit - used : 0); }
};

/// By RLIMIT_AS and RLIMIT_DATA (`ulimit -v`, `ulimit -d`), whichever leaves less.
AddressSpace address_space();

}  // namespace remat::memory
