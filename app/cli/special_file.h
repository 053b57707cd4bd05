// cli/special_file.h -- paths that are no regular file of their own: devices, pipes, and what the process has open
// already.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace remat::cli {

/// 1 for /proc/self/fd/1 and /dev/fd/1, which is where /dev/stdout leads; nothing for other paths.
std::optional<int> open_file_number(const std::string& path);

/// Where the symbolic links at `path` lead, so that a file replaces their target and they stay. It may not exist. Ends
/// at what stands for an open file of this process, as /dev/stdout does.
std::string follow_links(const std::string& path);

/// What can only be written to, and is no file to replace: a device, a pipe, or an open file of this process such as
/// /dev/stdout, also where that leads to a regular file.
bool is_special_file(const std::string& path);

/// Whether such a path may be written to. Opens nothing: a pipe's reader would see an end. Otherwise errno says why.
bool can_write_special_file(const std::string& path);

/// Waits until an open file can be written to; a pipe takes PIPE_BUF bytes then. Only a second once a signal was noted:
/// then it returns false, with the reason in errno.
bool wait_until_writable(int file);

/// Writes to such a path; an open file goes on after what was written to it before. Waits for the reader of a pipe, but
/// only a second once a signal was noted. Returns false, with the reason in errno, where the system refuses.
bool write_special_file(const std::string& path, const std::string& text);

}  // namespace remat::cli
