// cli/input_file.h -- a file that the user named, read whole.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace remat::cli {

/// What is read, for messages: "[what] cannot read 'path' (why); remedy".
struct InputKind {
  std::string what;    ///< "graph"
  std::string remedy;  ///< "give the file that `remat record` wrote"
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
};

/// The contents of a file, or what a pipe gives until it ends. Throws Error for what cannot be read, for directories
/// and devices, for a pipe to which nobody writes within 10 s, and for more than `most_bytes`, after which reading
/// ends.
std::string read_input(const std::string& path, const InputKind& kind);

}  // namespace remat::cli
