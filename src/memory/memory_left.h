// src/memory/memory_left.h -- how much memory the machine and the container have left, and whether tasks wait for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace remat::memory {

/// What the kernel says at one moment.
struct MemoryLeft {
  /// Bytes that could be taken before a limit is reached, or the machine's memory is used up. Cached pages of files
  /// that were not used of late count, as the kernel gives them up; swap does not. INT64_MAX: not known.
  int64_t bytes = INT64_MAX;
  std::string where;           ///< the group's directory, or the file, that says so
  double stalled_percent = 0;  ///< of the last ten seconds, in which a task waited for memory; 0 where not known
};

/// Where /proc and /sys are: "/", or what the environment's REMAT_SYSTEM_ROOT says, for tests.
std::filesystem::path system_root();

/// Reads the files of /proc and /sys/fs/cgroup (versions 1 and 2). `root`: the directory that those two are in.
///
/// The least of MemAvailable and, of the control groups that hold this process and those around them, limit
/// (memory.max, memory.high) minus use. Tasks: those of the innermost group that has memory.pressure, else of the
/// machine: what other groups wait for is theirs.
MemoryLeft memory_left(const std::filesystem::path& root = system_root());

}  // namespace remat::memory
