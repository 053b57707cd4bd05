// A few random programs of each kind on the CPU: the same bits with and without remat. run_programs.h says how to run
// more, or one; tests/python/many_programs.py runs 1,500 of each.
#include <gtest/gtest.h>

#include "fuzz/run_programs.h"

#ifdef __SANITIZE_ADDRESS__
/// Some in-place operators of PyTorch make cycles, plain as well; the programs count bytes themselves.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace remat::fuzz {
namespace {

class Fuzz : public testing::TestWithParam<int> {};

TEST_P(Fuzz, SameBitsWhateverIsDropped) { run_programs(check_exact, GetParam(), 300, 5); }
TEST_P(Fuzz, SameBitsFollowingAPlan) { run_programs(check_plans, GetParam(), 100, 24); }
TEST_P(Fuzz, SameBitsWhereStepsChange) { run_programs(check_changing_steps, GetParam(), 80, 24); }
TEST_P(Fuzz, SameBitsWithinEveryBudget) { run_programs(check_budgets, GetParam(), 120, 24); }

class FuzzKinds : public testing::TestWithParam<int> {};

TEST_P(FuzzKinds, SameBitsOrAnErrorWhereStoragesAreEmptied) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kStorages);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorWhereInputsAreWrittenUnseen) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kHiddenInputs);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorOfVerifyWhereAnythingIsWrittenUnseen) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kHiddenWrites);
}
TEST_P(FuzzKinds, SameBitsOrAnErrorWithSparseTensorsOverWrittenOnes) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kSparse);
}
TEST_P(FuzzKinds, SameBitsWhereScriptsChangeTheirLists) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kScripts);
}
TEST_P(FuzzKinds, SameBitsWhereBackwardMakesGraphs) {
  run_programs(check_kind, GetParam(), 40, 12, Kind::kDoubleBackward);
}
TEST_P(FuzzKinds, SameBitsOnSeveralThreads) { run_programs(check_threads, GetParam(), 40, 5, Kind::kThreads); }

INSTANTIATE_TEST_SUITE_P(Shards, FuzzKinds, testing::Range(0, kShards));
INSTANTIATE_TEST_SUITE_P(Shards, Fuzz, testing::Range(0, kShards));

}  // namespace
}  // namespace remat::fuzz
