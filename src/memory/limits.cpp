#include "memory/limits.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include <remat/memory.h>

#include "memory/control_groups.h"

namespace remat::memory {
namespace {

int64_t soft_limit(int resource) noexcept {
  rlimit limit{};
  const auto kind = static_cast<__rlimit_resource>(resource);
  if (getrlimit(kind, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(INT64_MAX)) return INT64_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

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

int64_t address_space_limit() noexcept { return std::min(soft_limit(RLIMIT_AS), soft_limit(RLIMIT_DATA)); }

AddressSpace address_space() {
  AddressSpace all{.limit = soft_limit(RLIMIT_AS), .name = "ulimit -v"};
  AddressSpace data{.limit = soft_limit(RLIMIT_DATA), .name = "ulimit -d"};
  if (all.limit == INT64_MAX && data.limit == INT64_MAX) return {};
  // In pages: all, resident, shared, code, libraries (always 0), data and stacks.
  std::array<int64_t, 6> pages{};
  std::ifstream statm("/proc/self/statm");
  for (int64_t& each : pages) statm >> each;
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  all.used = pages[0] * page;
  data.used = pages[5] * page;
  return data.left() < all.left() ? data : all;
}

int64_t resident_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace remat::memory
