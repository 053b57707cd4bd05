#include "cli/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <remat/error.h>

#include "cli/interrupt.h"

namespace remat::cli {

pid_t fork_child() {
  std::fflush(nullptr);  // what was printed is not to be printed twice
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) {
    throw Error("[process] no other process can be started (" + std::string(std::strerror(errno)) +
                "); close some programs");
  }
  if (process == 0) {
    heed_signals_of(parent);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it ended before it could be followed
  }
  return process;
}

std::string how_it_ended(const std::string& name, int status) {
  const auto how = WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                                       : "ended with code " + std::to_string(WEXITSTATUS(status));
  const bool memory = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  return "[process] the process of " + name + " " + how +
         (memory ? ", as the system does where memory runs out; lower --batch: all processes are in memory at once"
                 : "; run `remat train` with the same options, on one process, to see why");
}

}  // namespace remat::cli
