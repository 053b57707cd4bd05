// The command `remat`: exit codes and error messages.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "cli/compare.h"
#include "cli/export.h"
#include "cli/failure.h"
#include "cli/fit.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/plan.h"
#include "cli/printable.h"
#include "cli/rank_meeting.h"
#include "cli/record.h"
#include "cli/report.h"
#include "cli/special_file.h"
#include "cli/sweep.h"
#include "cli/train.h"

namespace {

using remat::cli::interrupted;

constexpr int kFailure = 1;

/// A file or socket that is opened later must not be taken for a standard stream that is closed. Writing to that is an
/// error all the same.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDONLY) != stream) return;
  }
}

// What was printed must have arrived, or the shell is told. That a pipe was closed is no failure of the command's.
int finish_output(int code) {
  // Whoever does not read is not waited for after a signal, also not by what exit() flushes.
  if (interrupted() != 0 && !remat::cli::wait_until_writable(STDOUT_FILENO)) {
    std::_Exit(code != 0 ? code : 128 + interrupted());
  }
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE || interrupted() == SIGPIPE) return code != 0 ? code : 128 + SIGPIPE;
  // Where an earlier line was lost, and later ones were not, the reason is gone.
  const std::string reason = std::strerror(flushed ? EIO : errno);
  remat::cli::print_failure("[output] cannot write to standard output (" + reason +
                            "); free some space there, or send it to another place");
  return code != 0 ? code : kFailure;
}

int run(const remat::cli::Command& command) {
  using namespace remat::cli;
  if (command.kind != Command::Kind::kPrint) catch_signals();
  switch (command.kind) {
    case Command::Kind::kPrint:
      std::fputs(command.text.c_str(), stdout);
      return 0;
    case Command::Kind::kTrain:
      return run_train(command.settings);
    case Command::Kind::kCompare:
      return run_compare(command.settings);
    case Command::Kind::kRecord:
      run_record(command.record);
      return 0;
    case Command::Kind::kPlan:
      run_plan(command.plan);
      return 0;
    case Command::Kind::kExport:
      run_export(command.exported);
      return 0;
    case Command::Kind::kFit:
      run_fit(command.fit);
      return 0;
    case Command::Kind::kSweep:
      run_sweep(command.sweep);
      return 0;
    case Command::Kind::kReport:
      run_report(command.report);
      return 0;
  }
  return kFailure;
}

}  // namespace

int main(int count, char** words) {
  using namespace remat::cli;
  occupy_closed_streams();
  try {
    return finish_output(run(parse_options({words + 1, words + count})));
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    print_failure(failure.message);
    if (count > 1 && std::strcmp(words[1], "train") == 0) tell_ranks(failure.message);
    return failure.code;
  }
}
