// cli/comma_list.h -- lists in one word of the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remat::cli {

/// "a,b" gives "a" and "b"; an empty part is an empty item, and an empty text one of those.
inline std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const auto comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace remat::cli
