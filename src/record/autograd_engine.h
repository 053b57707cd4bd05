// src/record/autograd_engine.h -- makes autograd ask remat how to save a tensor.
#pragma once

namespace remat {

/// Puts remat's engine before PyTorch's (or Python's): it answers get_default_saved_variable_hooks() and delegates
/// everything else. Once per process; thread-safe; later calls do nothing.
void install_autograd_engine();

}  // namespace remat
