// Random programs: the same bits with and without remat.
//
//   REMAT_FUZZ_PROGRAMS=100000 fuzz_tests                           as many programs as you like
//   REMAT_FUZZ_SEED=123 REMAT_FUZZ_PROGRAMS=1 fuzz_tests            one program, as a failure printed it
//   REMAT_FUZZ_FORK=1 fuzz_tests                                    each in a process: crashes are shrunk too
//   REMAT_FUZZ_VERBOSE=1 fuzz_tests                                 prints every program before it runs
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "fuzz/check.h"

#ifdef __SANITIZE_ADDRESS__
/// Some in-place operators of PyTorch make cycles, plain as well; the programs count bytes themselves.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace remat::fuzz {
namespace {

constexpr int kShards = 4;  // so that ctest may run them side by side

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// The same check in a child process, where a crash is a problem like any other.
Check isolated(const Check& check) {
  return [check](const Program& program, Tally& tally) -> std::optional<std::string> {
    int channel[2];
    if (pipe(channel) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      const auto problem = check(program, tally);
      const auto text = problem.value_or("").substr(0, 2000);
      const bool sent = write(channel[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(sent && !problem ? 0 : 1);
    }
    close(channel[1]);
    char buffer[2000];
    const ssize_t length = read(channel[0], buffer, sizeof(buffer));
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ++tally.programs;
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) == 0) return std::nullopt;
    return std::string(buffer, static_cast<size_t>(std::max<ssize_t>(0, length)));
  };
}

void run_programs(const Check& plain_check, int shard, int64_t programs, int64_t scale, Kind kind = Kind::kOrdinary) {
  const Check check = std::getenv("REMAT_FUZZ_FORK") != nullptr ? isolated(plain_check) : plain_check;
  setenv("REMAT_VALIDATE", "1", 1);  // before the first step
  memory::start_accounting();
  at::set_num_threads(1);
  install_crash_message();
  Silence silence;
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
    if (verbose) std::cout << "program " << program.seed << "\n" << listing_of(program) << std::flush;
    const auto problem = check(program, tally);
    if (!problem) continue;
    ++failures;
    const Program small = shrink(program, check, *problem);
    Tally ignored;
    const auto smaller = check(small, ignored);
    ADD_FAILURE() << "program " << program.seed << " (REMAT_FUZZ_SEED=" << program.seed
                  << " REMAT_FUZZ_PROGRAMS=1): " << *problem << "\nshrunk: " << smaller.value_or("does not fail again")
                  << "\n"
                  << listing_of(small);
  }
  if (tally.programs > 1) std::cout << tally.to_string();
}

class Fuzz : public testing::TestWithParam<int> {};

TEST_P(Fuzz, SameBitsWhateverIsDropped) { run_programs(check_exact, GetParam(), 1200, 5); }
TEST_P(Fuzz, SameBitsFollowingAPlan) { run_programs(check_plans, GetParam(), 200, 24); }
TEST_P(Fuzz, SameBitsWhereStepsChange) { run_programs(check_changing_steps, GetParam(), 200, 24); }
TEST_P(Fuzz, SameBitsWithinEveryBudget) { run_programs(check_budgets, GetParam(), 400, 24); }

class FuzzKinds : public testing::TestWithParam<int> {};

TEST_P(FuzzKinds, SameBitsOrAnErrorWhereStoragesAreEmptied) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kStorages);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorWhereInputsAreWrittenUnseen) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kHiddenInputs);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorOfVerifyWhereAnythingIsWrittenUnseen) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kHiddenWrites);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorWithSparseTensorsOverWrittenOnes) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kSparse);
}
TEST_P(FuzzKinds, SameBitsWhereScriptsChangeTheirLists) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kScripts);
}
TEST_P(FuzzKinds, SameBitsWhereBackwardMakesGraphs) {
  run_programs(check_kind, GetParam(), 100, 12, Kind::kDoubleBackward);
}
TEST_P(FuzzKinds, SameBitsOnSeveralThreads) { run_programs(check_threads, GetParam(), 100, 5, Kind::kThreads); }

INSTANTIATE_TEST_SUITE_P(Shards, FuzzKinds, testing::Range(0, kShards));
INSTANTIATE_TEST_SUITE_P(Shards, Fuzz, testing::Range(0, kShards));

}  // namespace
}  // namespace remat::fuzz
