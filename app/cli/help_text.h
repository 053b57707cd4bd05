// cli/help_text.h -- help pages that fit the terminal.
#pragma once

#include <cstddef>
#include <string>

namespace remat::cli {

/// CLI11's page with lines of at most `width` columns, cut between words. What follows a cut stands under the
/// beginning of its text. A word that is longer than a line is left whole.
std::string wrapped_help(const std::string& page, size_t width);

}  // namespace remat::cli
