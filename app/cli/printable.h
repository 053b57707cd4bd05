// cli/printable.h -- what came from elsewhere (names of files, contents of files), for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace remat::cli {

/// The text with what a terminal may take for commands as escapes: "a\x1b[31m" for its control characters, C1's among
/// them, and for bytes that are no UTF-8. A message is one line: ends of lines are "\n".
std::string printable(std::string_view text);

}  // namespace remat::cli
