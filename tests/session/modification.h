// tests/session/modification.h -- programs that change tensors between forward and backward, judged: where plain throws
// remat throws; where plain does not, remat is exact or refuses and says which operator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/compare.h"

namespace remat::test {

struct Attempt {
  std::optional<std::string> error;
  bool ours = false;
  Outcome outcome;
};

inline Attempt attempt(const std::function<Outcome()>& program) {
  Attempt result;
  torch::manual_seed(7);
  try {
    result.outcome = program();
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& e) {
    result.error = e.what();
    result.ours = dynamic_cast<const Error*>(&e) != nullptr;
  }
  return result;
}

inline void judge(const Attempt& plain, const Attempt& other, const std::string& how) {
  if (plain.error) {
    ASSERT_TRUE(other.error) << how << ": plain throws " << *plain.error;
    // Says which operator, in PyTorch's words (a version error) or in ours.
    EXPECT_TRUE(other.error->find("modified") != std::string::npos || other.error->find("::") != std::string::npos)
        << how << ": " << *other.error;
  } else if (other.error) {
    EXPECT_TRUE(other.ours) << how << ": " << *other.error;
    EXPECT_NE(other.error->find("::"), std::string::npos) << how << " names no operator: " << *other.error;
  } else {
    expect_same_bits(plain.outcome, other.outcome, how);
  }
}

/// Runs the step that `prepare` returns, plain and in every way of remat. What `prepare` makes is older than the step,
/// as parameters and buffers are. Returns whether plain threw.
inline bool expect_exact_or_refused_after(const std::function<Program()>& prepare) {
  memory::start_accounting();
  const auto prepared = [&] {
    torch::manual_seed(7);
    return prepare();
  };
  const Attempt plain = attempt(prepared());
  const auto within = [&](const char* how, bool session, bool verify, bool drop) {
    const int64_t before = memory::current();
    {
      const Program program = prepared();
      std::optional<Session> owner;
      std::optional<Step> step;
      std::optional<PolicyScope> scope;
      if (session) owner.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = verify});
      if (session) step.emplace(owner->step());
      if (drop) scope.emplace(Policy::drop_all());
      judge(plain, attempt(program), how);
    }
    EXPECT_EQ(memory::current(), before) << how << " leaks";
  };
  within("drop all, no session", false, false, true);
  within("session", true, false, false);
  within("drop all, verified", true, true, true);
  return plain.error.has_value();
}

/// The same for a step that makes all its tensors itself.
inline bool expect_exact_or_refused(const Program& program) {
  return expect_exact_or_refused_after([&] { return program; });
}

inline Outcome gradients(const std::vector<at::Tensor>& leaves) {
  Outcome outcome;
  for (const auto& leaf : leaves) outcome.add("grad", leaf.grad());
  for (const auto& leaf : leaves) outcome.add("value", leaf);
  outcome.add_generator();
  return outcome;
}

}  // namespace remat::test
