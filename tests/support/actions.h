// tests/support/actions.h -- actions drawn at random, and written as letters.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat::test {

/// Held from the first time on mostly, from the second to the fourth, or never.
inline Action random_recompute(std::mt19937& random) {
  const auto draw = random() % 8;
  return draw < 4 ? Action::kRecompute : draw < 7 ? Action::recompute(draw - 2) : Action::kRecomputeEachTime;
}

/// Any that `value` may have.
inline Action random_action(const GraphValue& value, std::mt19937& random) {
  const auto draw = random() % 4;
  if (!value.returns() || draw == 0) return Action::kKeep;
  return draw == 1 && value.packed_bytes > 0 ? Action::kPack : random_recompute(random);
}

inline std::vector<Action> random_actions(const Graph& graph, std::mt19937& random) {
  std::vector<Action> actions;
  for (const GraphValue& value : graph.values) actions.push_back(random_action(value, random));
  return actions;
}

/// A character for each: k(eep), p(ack), m(ove), the time from which on it is held (+ above 9), a(lways recomputed).
inline std::string letters(const std::vector<Action>& actions) {
  std::string text;
  for (const Action action : actions) {
    switch (action.kind) {
      case Action::Kind::kKeep:
        text += 'k';
        break;
      case Action::Kind::kHold:
        text += action.form == Form::kPacked ? 'p' : 'm';
        break;
      case Action::Kind::kRecompute:
        text += action.held_from == Action::kNever ? 'a' : action.held_from > 9 ? '+' : char('0' + action.held_from);
    }
  }
  return text;
}

}  // namespace remat::test
