#include "cli/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace remat::cli {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

void note(int signal) { noted_signal = signal; }

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  action.sa_flags = SA_RESTART;  // every further line of progress meets the closed pipe again
  sigaction(SIGPIPE, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

int interrupted() { return noted_signal; }

}  // namespace remat::cli
