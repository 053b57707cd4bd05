#include "memory/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace remat::memory {
namespace {

/// The group `path` below `mount`, after all groups around it.
void add_groups(std::vector<ControlGroup>& groups, int version, const std::filesystem::path& mount,
                std::string_view path) {
  ControlGroup group{.directory = mount, .version = version};
  groups.push_back(group);
  for (const auto& part : std::filesystem::path(path).relative_path()) {
    if (part == "..") break;  // a group outside of this namespace's root: nothing of it can be seen
    group.directory /= part;
    groups.push_back(group);
  }
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

std::vector<ControlGroup> control_groups(const std::filesystem::path& membership, const std::filesystem::path& mount) {
  std::vector<ControlGroup> groups;
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
      add_groups(groups, 2, mount, path);
      add_groups(groups, 2, mount / "unified", path);
    } else if (names_memory(controllers)) {
      add_groups(groups, 1, mount / "memory", path);
    }
  }
  return groups;
}

std::optional<int64_t> read_count(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text)) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

}  // namespace remat::memory
