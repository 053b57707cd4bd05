// src/record/generator_state.h -- the state of random number generators around recorded and replayed operators.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>

#include "record/tape.h"

namespace remat {

/// A generator with its present state.
GeneratorRecord capture_generator(at::Generator generator);
/// Does nobody hold the generator's mutex, or not for longer than a draw takes?
bool is_free(at::Generator generator);
/// The generator that an operator on `device` draws from when it is given none; an undefined one if there is none.
at::Generator default_generator(c10::Device device);
/// Is the generator no longer in the recorded state?
bool has_drawn(GeneratorRecord record);

/// Puts a recorded state in place, and the present state back when it goes out of scope, exceptions included.
class GeneratorRestorer {
 public:
  explicit GeneratorRestorer(const GeneratorRecord& record);
  ~GeneratorRestorer();
  GeneratorRestorer(const GeneratorRestorer&) = delete;
  GeneratorRestorer& operator=(const GeneratorRestorer&) = delete;

 private:
  GeneratorRecord present_;
};

}  // namespace remat
