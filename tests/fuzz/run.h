// tests/fuzz/run.h -- one run of a random program: plain, or in one way of remat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/machine.h"

namespace remat::fuzz {

/// One run of a program, plain or under remat.
struct Run {
  Trace trace;
  std::vector<ParameterSpec> parameters;
  std::string listing;
  std::optional<StepReport> report;
  std::optional<int64_t> lower_bound;  ///< the budget error's, if there was one
  int64_t baseline = 0;
  int64_t peak = 0;
  int64_t leaked = 0;
  bool leaked_empty = false;  ///< tensors without bytes

  /// Some in-place operators make cycles in plain PyTorch: a saved tensor that its own history holds.
  bool has_cycle() const { return leaked > 0 || leaked_empty; }
};

struct Setting {
  std::string name;
  bool plain = false;
  bool session = false;
  bool verify = false;
  std::optional<int64_t> budget = {};  ///< bytes above the baseline
  std::vector<ScopeRange> scopes = {};
  std::string planner = "online";
  int steps = 1;  ///< of one session; the last one counts
};

/// One step. Makes the session first where the setting wants one and there is none.
Run run_step(const Program& program, const std::vector<ParameterSpec>& parameters, const Setting& setting,
             std::optional<Session>& session);

/// All of the setting's steps; the last one's run. PyTorch makes some tensors once and keeps them: what leaks has to
/// leak again.
Run run(const Program& program, const std::vector<ParameterSpec>& parameters, const Setting& setting);

}  // namespace remat::fuzz
