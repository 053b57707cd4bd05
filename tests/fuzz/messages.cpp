// What is said of the programs that ran, and of the one that was running when the process came to an end.
#include <csignal>
#include <cstdio>
#include <sstream>

#include <unistd.h>

#include "fuzz/check.h"

namespace remat::fuzz {
namespace {

char announced[256] = "";

}  // namespace

std::string Tally::to_string() const {
  std::ostringstream out;
  out << programs << " programs (" << threw << " throw), " << runs << " runs, " << refused << " refused, " << recorded
      << " operators recorded, " << replayed << " replayed, " << dropped << " values dropped, " << packed
      << " packed, budgets held " << budgets_held << ", refused " << budgets_refused << ", not monotone "
      << not_monotone << ", planned " << planned << " (exactly " << as_planned << ", above " << above_plan
      << "), worst replay ratio " << worst_replay_ratio << " (seed " << worst_replay_seed << ")\n";
  for (const auto& [text, count] : refusals) out << "  " << count << " x " << text << "\n";
  return out.str();
}

void announce(const Program& program, const char* what) {
  std::snprintf(announced, sizeof(announced), "while running program %llu of length %d, scale %lld: %s\n",
                static_cast<unsigned long long>(program.seed), program.length, static_cast<long long>(program.scale),
                what);
  alarm(120);
}

void install_crash_message() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM}) {
    std::signal(signal, [](int number) {
      const auto length = std::char_traits<char>::length(announced);
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, announced, length);
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
  }
}

}  // namespace remat::fuzz
