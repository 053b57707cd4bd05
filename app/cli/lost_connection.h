// cli/lost_connection.h -- what Gloo says where a process that trains with this one has ended.
#pragma once

#include <exception>
#include <string_view>

namespace remat::cli {

inline constexpr const char* kLostConnection =
    "[ranks] the connection to another process is lost: it has ended, or cannot be reached; its own message says why";

/// Gloo has no type for it that its headers show to whoever has none of them.
inline bool is_lost_connection(const std::exception& error) {
  return std::string_view(error.what()).find("/gloo/") != std::string_view::npos;
}

}  // namespace remat::cli
