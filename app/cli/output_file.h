// cli/output_file.h -- a file that the user named for results: written beside its place, then moved there.
#pragma once

#include <string>

namespace remat::cli {

/// Throws Error unless a file could be written at `path` now: called before the work, not after. `option`: who named
/// the path, as in "json"; messages begin with [json] and point at --json. An empty path is fine.
void check_output_path(const std::string& path, const std::string& option);

/// Writes `text`; what was at `path` before stays if that fails. A link stays, and its target is replaced. A device, a
/// pipe and /dev/stdout are written to. Does nothing for an empty path.
void write_output(const std::string& path, const std::string& text, const std::string& option);

}  // namespace remat::cli
