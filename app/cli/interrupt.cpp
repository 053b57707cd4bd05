#include "cli/interrupt.h"

#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include <unistd.h>

namespace remat::cli {
namespace {

constexpr int64_t kOneSignal = 100;  // milliseconds

volatile std::sig_atomic_t noted_signal = 0;
volatile std::sig_atomic_t polite_stops = 0;
volatile std::sig_atomic_t removes = 0;
pid_t heeded = 0;  // 0: all
timespec noted_at;
char path_to_remove[PATH_MAX];  // a handler may not allocate

/// Since the first signal was noted.
bool is_soon_after() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - noted_at.tv_sec) * 1000 + (now.tv_nsec - noted_at.tv_nsec) / 1'000'000 < kOneSignal;
}

void handle(int signal, siginfo_t* info, void* /*context*/) {
  if (heeded != 0 && signal != SIGPIPE && info->si_pid != heeded) return;
  const bool wait = polite_stops > 0 && (noted_signal == 0 || signal == SIGPIPE || is_soon_after());
  if (!wait) {
    if (removes != 0) unlink(path_to_remove);
    _exit(128 + (noted_signal != 0 ? noted_signal : signal));
  }
  if (noted_signal != 0) return;
  clock_gettime(CLOCK_MONOTONIC, &noted_at);
  noted_signal = signal;
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (const int signal : {SIGTERM, SIGPIPE}) sigaction(signal, &action, nullptr);
  for (const int signal : {SIGINT, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

void heed_signals_of(pid_t process) { heeded = process; }

PoliteStop::PoliteStop() { polite_stops = polite_stops + 1; }
PoliteStop::~PoliteStop() { polite_stops = polite_stops - 1; }

int interrupted() { return noted_signal; }

void remove_when_interrupted(const std::string& path) {
  removes = 0;
  if (path.size() >= sizeof path_to_remove) return;  // no system call would take it either
  std::memcpy(path_to_remove, path.c_str(), path.size() + 1);
  removes = 1;
}

void keep_when_interrupted() { removes = 0; }

}  // namespace remat::cli
