#include "cli/launch_ranks.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>

#include <ATen/Parallel.h>

#include <remat/error.h>
#include <remat/memory.h>

#include "cli/child_process.h"
#include "cli/interrupt.h"
#include "cli/printable.h"

namespace remat::cli {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPause = 50ms;  // between looks at the ranks
// What the others get to end by themselves: where one was killed, which they do not notice before all are connected;
// and where one has failed, since rank 0 may be writing the last files.
constexpr auto kGraceAfterKill = 10s, kGraceAfterFailure = 60s;

constexpr int kFirstSignalCode = 128;  // exit codes from here on: a signal, which all ranks have agreed on

void kill_all(const std::vector<pid_t>& ranks, int signal) {
  for (const pid_t rank : ranks) {
    if (rank != 0) kill(rank, signal);
  }
}

/// Returns the exit code of the first of `ranks` that failed, 0 for none.
int wait_for(std::vector<pid_t> ranks) {
  const PoliteStop polite;
  bool passed_on = false;
  int code = 0;
  auto deadline = Clock::time_point::max();
  while (std::ranges::count(ranks, 0) < std::ssize(ranks)) {
    std::this_thread::sleep_for(kPause);
    if (interrupted() != 0 && !std::exchange(passed_on, true)) kill_all(ranks, interrupted());
    const bool late = Clock::now() > deadline;
    if (late) kill_all(ranks, SIGKILL);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      int status = 0;
      if (ranks[rank] == 0 || waitpid(ranks[rank], &status, WNOHANG) != ranks[rank]) continue;
      ranks[rank] = 0;
      if (status == 0 || late) continue;
      const bool killed = WIFSIGNALED(status);
      if (killed) print_failure(how_it_ended("rank " + std::to_string(rank), status));
      // A rank that tells why it ended counts more than those that end because of it.
      const int own = killed ? 1 : WEXITSTATUS(status);
      if (code <= 1 && own > code) code = own;
      if (code < kFirstSignalCode)
        deadline = std::min(deadline, Clock::now() + (killed ? kGraceAfterKill : kGraceAfterFailure));
    }
  }
  if (code != 0 && code < kFirstSignalCode) {  // where none has told more
    const std::string why = why_ranks_fell_apart();
    print_failure("[process] " +
                  (why.empty() ? "the ranks have lost each other; train on one process to see why" : why));
  }
  return code;
}

/// Their threads would wait for each other's cores. OMP_NUM_THREADS decides where the user has set it.
void share_machine(int count) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(std::max(1, at::get_num_threads() / count));
  memory::set_limit(memory::limit() / count);
}

}  // namespace

Launched launch_ranks(int count) {
  // A file in no folder, which the ranks can open by its path while they have it open.
  const int store = memfd_create("remat-ranks", MFD_CLOEXEC);
  if (store < 0) {
    throw Error("[ranks] the processes have no place to meet (" + std::string(std::strerror(errno)) +
                "); close some files or programs");
  }
  share_failures();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back(fork_child());
    if (ranks.back() != 0) continue;
    share_machine(count);
    return {.place = RankPlace{.rank = rank, .size = count, .file = "/proc/self/fd/" + std::to_string(store)}};
  }
  return {.place = std::nullopt, .code = wait_for(std::move(ranks))};
}

}  // namespace remat::cli
