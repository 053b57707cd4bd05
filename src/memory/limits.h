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

}  // namespace remat::memory
