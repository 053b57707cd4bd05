// cli/wrong_usage.h -- what is thrown where the command line makes no sense.
#pragma once

#include <remat/error.h>

namespace remat::cli {

/// Exit code 2, where other errors are 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace remat::cli
