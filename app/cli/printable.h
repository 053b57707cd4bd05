// cli/printable.h -- what came from elsewhere (names of files, contents of files), for a terminal; and messages on
// standard error, each a line "remat: [where] what; what to do".
#pragma once

#include <string>
#include <string_view>

namespace remat::cli {

/// The text with what a terminal may take for commands as escapes: "a\x1b[31m" for its control characters, C1's among
/// them, and for bytes that are no UTF-8. A message is one line: ends of lines are "\n".
std::string printable(std::string_view text);

/// Prints something that ends nothing. `in_progress`: the line before may be a bar that is not ended.
void print_notice(const std::string& text, bool in_progress = false);

/// Prints why the command ends.
void print_failure(const std::string& text);

/// Of this process and those that it forks from now on, which train together, the first to fail prints why. What begins
/// with "[ranks]" is only of what another one met: that is left to it.
void share_failures();
/// The first message of a rank that fell apart from the others, which print_failure() keeps to itself; empty: none did.
std::string why_ranks_fell_apart();

/// From now on this process prints failures alone: rank 0 prints the rest.
void leave_printing_to_rank_0();

}  // namespace remat::cli
