// src/export/step.h -- a training step as calls of kernels on buffers: the format remat-step in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace remat::exporting {

struct StepBuffer {
  enum class Kind : uint8_t { kParameter, kConstant, kState, kInput, kValue };
  enum class Type : uint8_t { kFloat, kInt, kUnsigned, kByte, kBits };

  std::string name;
  Kind kind = Kind::kValue;
  Type type = Type::kFloat;
  std::vector<int64_t> shape;
  std::vector<double> values;  ///< what it has at first; empty: zeros
  int64_t elements = 0;
  int64_t bytes = 0;  ///< whole words
};

struct StepRead {
  int32_t buffer = -1;  ///< -1: the input is absent
  int64_t offset = 0;   ///< in elements
};

/// One argument of a kernel: a number, or a list of them.
struct StepArgument {
  std::string name;
  std::vector<double> numbers;
};

struct StepOperator {
  enum class Phase : uint8_t { kForward, kBackward, kPredict };

  std::string kernel;
  Phase phase = Phase::kForward;
  std::vector<StepRead> inputs;
  std::vector<int32_t> results;  ///< buffers, all of each; -1: absent
  std::vector<StepArgument> arguments;
  int64_t workspace = 0;                              ///< bytes
  std::vector<std::pair<int32_t, int32_t>> in_place;  ///< an input, and a result that may lie over it
  std::string source;

  double argument(std::string_view name, size_t index = 0) const;  ///< 0 where there is none
  bool reads(int32_t buffer) const;
};

struct StepGradient {
  int32_t parameter = -1;
  int32_t gradient = -1;
  bool transposed = false;  ///< how it is stored, as a matrix of the parameter's first dimension and the others
};

struct Step {
  static constexpr int kVersion = 1;

  std::string name;
  std::vector<StepBuffer> buffers;
  std::vector<StepOperator> operators;  ///< forward, then backward, then those of the prediction
  std::vector<StepGradient> gradients;  ///< one for each parameter that is trained
  int32_t loss = -1;
  int32_t output = -1;   ///< of the prediction; -1: there is none
  int32_t counter = -1;  ///< a seed and the step's number; -1: nothing is random

  bool is_value(int32_t buffer) const { return buffer >= 0 && buffers[buffer].kind == StepBuffer::Kind::kValue; }
};

/// Reads and checks a step. Throws Error.
Step step_from_json(std::string_view text);

}  // namespace remat::exporting
