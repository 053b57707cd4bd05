#include "memory/limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

#include <remat/memory.h>

namespace remat::memory {
namespace {

/// The number in a limit file, or INT64_MAX: no such file, "max" (version 2), a value that does not fit or 0 or less.
int64_t read_limit(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text)) return INT64_MAX;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return INT64_MAX;
  return value;
}

/// The smallest limit in `file` of the group `path` below `mount` and of all groups around it.
int64_t smallest_up_to(const std::filesystem::path& mount, std::string_view path, const char* file) {
  int64_t smallest = read_limit(mount / file);
  std::filesystem::path group = mount;
  for (const auto& part : std::filesystem::path(path).relative_path()) {
    if (part == "..") break;  // a group outside of this namespace's root: nothing of it can be seen
    group /= part;
    smallest = std::min(smallest, read_limit(group / file));
  }
  return smallest;
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

int64_t physical_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

int64_t cgroup_limit(const std::filesystem::path& membership, const std::filesystem::path& mount) {
  int64_t smallest = INT64_MAX;
  std::ifstream in(membership);
  // Lines read `hierarchy:controllers:path`; version 2 has hierarchy 0 and no controllers.
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (controllers.empty()) {
      // Mixed systems mount version 2 at "unified", and may leave it without a memory controller.
      smallest = std::min(
          {smallest, smallest_up_to(mount, path, "memory.max"), smallest_up_to(mount / "unified", path, "memory.max")});
    } else if (names_memory(controllers)) {
      smallest = std::min(smallest, smallest_up_to(mount / "memory", path, "memory.limit_in_bytes"));
    }
  }
  return smallest;
}

int64_t resident_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace remat::memory
