// cli/interrupt.h -- a polite stop: the step in progress is finished, then the run saves itself and ends.
#pragma once

namespace remat::cli {

/// From now on the first Ctrl-C, termination request, closed terminal or closed pipe is only noted; a second Ctrl-C
/// (or other request) ends the process at once. Writing beyond a file-size limit becomes an ordinary error.
void catch_signals();

/// The number of the signal noted, 0 for none. The exit code that tells a shell of it is 128 + this number.
int interrupted();

}  // namespace remat::cli
