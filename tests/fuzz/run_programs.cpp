#include "fuzz/run_programs.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "support/silence.h"

namespace remat::fuzz {
namespace {

constexpr size_t kLongest = 4000;  // text of a child process: a pipe passes this on in one piece

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// The same check in a child process, where a crash is a problem like any other.
Check isolated(const Check& check) {
  return [check](const Program& program, Tally& tally) -> std::optional<std::string> {
    int channel[2];
    if (pipe(channel) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      const auto problem = check(program, tally);
      const auto text = problem.value_or("").substr(0, kLongest);
      const bool sent = write(channel[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(sent && !problem ? 0 : 1);
    }
    close(channel[1]);
    std::string buffer(kLongest, ' ');
    buffer.resize(static_cast<size_t>(std::max<ssize_t>(0, read(channel[0], buffer.data(), buffer.size()))));
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ++tally.programs;
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) == 0) return std::nullopt;
    return buffer;
  };
}

}  // namespace

void run_programs(const Check& plain_check, int shard, int64_t programs, int64_t scale, Kind kind, c10::Device device) {
  const bool fork = std::getenv("REMAT_FUZZ_FORK") != nullptr;
  const Check check = fork ? isolated(plain_check) : plain_check;
  // Threads of a device would not be in the processes that are made after it has worked in this one.
  const auto listing = [&](const Program& program) {
    const Check list = [](const Program& listed, Tally& /*tally*/) { return std::optional(listing_of(listed)); };
    Tally ignored;
    return (fork ? isolated(list) : list)(program, ignored).value_or("");
  };
  setenv("REMAT_VALIDATE", "1", 1);  // before the first step
  memory::start_accounting();
  memory::start_accounting(device);
  at::set_num_threads(1);
  install_crash_message();
  test::Silence silence;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silence);
  const int64_t first = from_environment("REMAT_FUZZ_SEED", 1);
  const bool verbose = std::getenv("REMAT_FUZZ_VERBOSE") != nullptr;
  const int64_t count = from_environment("REMAT_FUZZ_PROGRAMS", programs);
  const int64_t most_failures = from_environment("REMAT_FUZZ_FAILURES", 5);
  Tally tally;
  int64_t failures = 0;
  for (int64_t i = shard; i < count && failures < most_failures; i += kShards) {
    Program program;
    program.seed = static_cast<uint64_t>(first + i);
    Random random(program.seed);
    program.length = static_cast<int>(random.between(4, 40));
    program.scale = scale;
    program.kind = kind;
    program.device = device;
    if (verbose) std::cout << "program " << program.seed << "\n" << listing(program) << std::flush;
    const auto problem = check(program, tally);
    if (!problem) continue;
    ++failures;
    const Program small = shrink(program, check, *problem);
    Tally ignored;
    const auto smaller = check(small, ignored);
    ADD_FAILURE() << "program " << program.seed << " (REMAT_FUZZ_SEED=" << program.seed
                  << " REMAT_FUZZ_PROGRAMS=1): " << *problem << "\nshrunk: " << smaller.value_or("does not fail again")
                  << "\n"
                  << listing(small);
  }
  if (tally.programs > 1) std::cout << tally.to_string();
}

}  // namespace remat::fuzz
