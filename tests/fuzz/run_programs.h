// tests/fuzz/run_programs.h -- a test of many random programs. What it obeys of the environment:
//
//   REMAT_FUZZ_PROGRAMS=100000 fuzz_tests                           as many programs as you like
//   REMAT_FUZZ_SEED=123 REMAT_FUZZ_PROGRAMS=1 fuzz_tests            one program, as a failure printed it
//   REMAT_FUZZ_FORK=1 fuzz_tests                                    each in a process: crashes are shrunk too
//   REMAT_FUZZ_VERBOSE=1 fuzz_tests                                 prints every program before it runs
//   REMAT_FUZZ_FAILURES=100 fuzz_tests                              ends a shard after so many failures, not after 5
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "fuzz/check.h"

namespace remat::fuzz {

constexpr int kShards = 4;  // so that ctest may run them side by side

/// Runs every kShards-th of so many programs, from the shard's number on, and reports those on which the check finds
/// something wrong as failures of the test, shrunk.
void run_programs(const Check& check, int shard, int64_t programs, int64_t scale, Kind kind = Kind::kOrdinary,
                  c10::Device device = c10::kCPU);

}  // namespace remat::fuzz
