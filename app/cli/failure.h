// cli/failure.h -- an exception as the user of the command meets it.
#pragma once

#include <exception>
#include <string>

namespace remat::cli {

struct Failure {
  int code = 1;         ///< the command's exit code: 1, 2 for wrong usage, 3 for a budget that is too small
  std::string message;  ///< "[where] what happened, with the numbers; what to do"
};

Failure failure_of(const std::exception_ptr& error);

}  // namespace remat::cli
