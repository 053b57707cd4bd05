// tests/cuda/runtime/absent.h -- functions that PyTorch links and that are not simulated. CMake writes their list.
#pragma once

#include <cstdio>
#include <cstdlib>

/// Weak: a function that is simulated takes its place.
#define REMAT_ABSENT(name, error)                                                   \
  extern "C" __attribute__((weak, visibility("default"))) int name() {              \
    const bool logs = std::getenv("REMAT_SIMULATED_CUDA_LOG") != nullptr;           \
    if (logs) std::fputs("simulated CUDA: " #name "() is not simulated\n", stderr); \
    return error;                                                                   \
  }
