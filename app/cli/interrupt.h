// cli/interrupt.h -- Ctrl-C, termination requests, closed terminals and closed pipes: an end at once where there is
// nothing to lose, a polite stop in the middle of a training.
#pragma once

#include <string>

#include <sys/types.h>

namespace remat::cli {

/// From now on such a signal ends the process at once, with the exit code that tells a shell of it: 128 + its number.
/// Nothing that waits (for the other end of a pipe, for a large model) can delay it. Writing beyond a file-size limit
/// becomes an ordinary error. Who started the process with Ctrl-C or hang-ups ignored (nohup, a script's `&`) wants it
/// to go on: they stay ignored.
void catch_signals();

/// From now on such signals are ignored unless `process` sends them, but for that of a closed pipe: this process is of
/// the group of that one, which passes on what the group gets.
void heed_signals_of(pid_t process);

/// While one of these lives, the first signal is only noted; a second one (but not of a closed pipe, which every
/// further line of progress meets again) ends the process at once. `timeout` and others send the same twice, to the
/// process and to its group: within a tenth of a second, two signals are one.
class PoliteStop {
 public:
  PoliteStop();
  ~PoliteStop();
  PoliteStop(const PoliteStop&) = delete;
  PoliteStop& operator=(const PoliteStop&) = delete;
};

/// The number of the signal noted, 0 for none.
int interrupted();

/// The file that a signal which ends the process removes first, because half of it is of no use. One at a time.
void remove_when_interrupted(const std::string& path);
/// No more.
void keep_when_interrupted();

}  // namespace remat::cli
