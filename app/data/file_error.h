// data/file_error.h -- errors that name a file and a line of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::data {

/// Throws Error: "[data] 'path' line 7: problem". Lines count from 1.
[[noreturn]] void refuse_line(const std::string& path, int64_t line, const std::string& problem);

/// Throws Error: "[data] 'path' problem".
[[noreturn]] void refuse_file(const std::string& path, const std::string& problem);

/// "'a', 'b', ... (12 in all)": the first of `names`, for messages.
std::string list_names(const std::vector<std::string>& names);

}  // namespace remat::data
