#include "memory/memory_left.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "memory/control_groups.h"

namespace remat::memory {
namespace {

namespace fs = std::filesystem;

/// The number behind `name` in lines of names and numbers.
std::optional<int64_t> number_of(const fs::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(" \t", name.size());
    if (at == std::string::npos || at == name.size()) continue;  // a longer name
    int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), value);
    if (error == std::errc() && value >= 0) return value;
  }
  return std::nullopt;
}

/// The percentage in "some avg10=1.25 avg60=...".
std::optional<double> stalled_in(const fs::path& file) {
  constexpr std::string_view kName = "some avg10=";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kName)) continue;
    double value = 0;
    const auto [end, error] = std::from_chars(line.data() + kName.size(), line.data() + line.size(), value);
    if (error == std::errc() && value >= 0 && value <= 100) return value;
  }
  return std::nullopt;
}

/// Empty: the group has no limit, or is not there.
std::optional<int64_t> left_in(const ControlGroup& group) {
  const ControlGroup::Files files = group.files();
  std::optional<int64_t> limit = read_count(group.directory / files.limit);
  if (group.version == 2) {  // above it, tasks are made to wait
    const auto high = read_count(group.directory / "memory.high");
    if (high) limit = std::min(limit.value_or(INT64_MAX), *high);
  }
  const auto usage = read_count(group.directory / files.usage);
  if (!limit || !usage) return std::nullopt;
  const int64_t inactive = std::min(*usage, number_of(group.directory / "memory.stat", files.inactive).value_or(0));
  return std::max<int64_t>(0, *limit - (*usage - inactive));
}

}  // namespace

fs::path system_root() {
  const char* const given = std::getenv("REMAT_SYSTEM_ROOT");
  return given != nullptr && *given != '\0' ? given : "/";
}

MemoryLeft memory_left(const fs::path& root) {
  MemoryLeft left;
  const auto take = [&](int64_t bytes, const fs::path& where) {
    if (bytes < left.bytes) left = {.bytes = bytes, .where = where.string()};
  };
  const fs::path meminfo = root / "proc/meminfo";
  constexpr int64_t kKibibyte = 1024;
  if (const auto available = number_of(meminfo, "MemAvailable:"); available && *available < INT64_MAX / kKibibyte) {
    take(*available * kKibibyte, meminfo);
  }
  std::optional<double> stalled;
  for (const ControlGroup& group : control_groups(root / "proc/self/cgroup", root / "sys/fs/cgroup")) {
    if (const auto bytes = left_in(group)) take(*bytes, group.directory);
    if (const auto own = stalled_in(group.directory / "memory.pressure")) stalled = own;  // the innermost comes last
  }
  if (!stalled) stalled = stalled_in(root / "proc/pressure/memory");
  left.stalled_percent = stalled.value_or(0);
  return left;
}

}  // namespace remat::memory
