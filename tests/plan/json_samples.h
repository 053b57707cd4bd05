// tests/plan/json_samples.h -- a plan as JSON, and what is said of texts that are like it or like a graph.
#pragma once

#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <remat/error.h>
#include <remat/graph.h>
#include <remat/plan.h>

#include "sample_graph.h"

namespace remat::test {

inline constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

inline Plan sample_plan() {
  return {.planner = "test",
          .graph_fingerprint = 0xfedcba9876543210,  // no double holds it
          .budget_bytes = kMost,
          .predicted_peak_bytes = 9007199254740993,  // nor this
          .predicted_seconds = 0.1,
          .forms = {{Form::kPacked, {{8e-11, 0}, {5e-11, 0}}}},
          .actions = {Action::kKeep, Action::kRecompute, Action::kPack, Action::kRecomputeEachTime, Action::kKeep,
                      Action::kRecompute}};
}

inline std::string with(std::string text, const std::string& old_part, const std::string& new_part) {
  const size_t place = text.find(old_part);
  EXPECT_NE(place, std::string::npos) << old_part << " is not in\n" << text;
  return place == std::string::npos ? text : text.replace(place, old_part.size(), new_part);
}

template <class Callable>
inline std::string message_of(Callable&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline std::string graph_message(const std::string& text) {
  return message_of([&] { graph_from_json(text); });
}
inline std::string plan_message(const std::string& text) {
  return message_of([&] { plan_from_json(text); });
}

inline std::string graph_with(const std::string& old_part, const std::string& new_part) {
  return graph_message(with(to_json(sample_graph()), old_part, new_part));
}
inline std::string plan_with(const std::string& old_part, const std::string& new_part) {
  return plan_message(with(to_json(sample_plan()), old_part, new_part));
}

inline const std::string kRemedy = "; docs/formats.md says what belongs there";

}  // namespace remat::test
