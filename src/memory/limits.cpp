#include "memory/limits.h"

#include <algorithm>

#include <sys/resource.h>
#include <unistd.h>

#include <remat/memory.h>

#include "memory/control_groups.h"

namespace remat::memory {

int64_t physical_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

int64_t cgroup_limit(const std::filesystem::path& membership, const std::filesystem::path& mount) {
  int64_t smallest = INT64_MAX;
  for (const ControlGroup& group : control_groups(membership, mount)) {
    smallest = std::min(smallest, read_count(group.directory / group.files().limit).value_or(INT64_MAX));
  }
  return smallest;
}

int64_t resident_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace remat::memory
