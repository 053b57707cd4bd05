// tests/cli/usage_error.h -- what `remat` says to wrong usage.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/wrong_usage.h"

namespace remat::test {

/// The message; "(no usage error)" where there is none. Other errors pass.
inline std::string usage_error_of(const std::vector<std::string>& arguments) {
  try {
    cli::parse_options(arguments);
  } catch (const cli::UsageError& error) {
    return error.what();
  }
  return "(no usage error)";
}

}  // namespace remat::test
