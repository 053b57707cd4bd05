// src/tape/generator_state.h -- the state of random number generators around recorded and replayed operators.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>

#include "operators/draw_section.h"
#include "tape/tape.h"

namespace remat {

/// A generator with its present state.
GeneratorRecord capture_generator(at::Generator generator);
/// Does nobody hold the generator's mutex, or not for longer than a draw takes?
bool is_free(at::Generator generator);
/// The checksum of the generator's present state; 0 where there is no memory for it.
uint64_t state_checksum(at::Generator generator) noexcept;

/// Puts a recorded state in place, and the present state back when it goes out of scope, exceptions included.
class GeneratorRestorer {
 public:
  explicit GeneratorRestorer(const GeneratorRecord& record);
  /// Has been drawn from the recorded state what the recorded operator drew, and nothing else?
  bool has_drawn_the_same() const;
  ~GeneratorRestorer();
  GeneratorRestorer(const GeneratorRestorer&) = delete;
  GeneratorRestorer& operator=(const GeneratorRestorer&) = delete;

 private:
  DrawSection section_;
  GeneratorRecord present_;
  uint64_t drawn_;
};

}  // namespace remat
