// remat/plan.h -- what becomes of each saved value of a graph: what planners write and sessions follow.
//
// docs/formats.md has the JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// What holds a value's contents in place of its tensor, until they are needed again.
enum class Form : uint8_t {
  kPacked,  ///< fewer bytes of the same memory, without loss (values with packed_bytes)
  kMoved,   ///< the bytes of another memory, Graph::tier, as far as that has room
};
inline constexpr size_t kForms = 2;

/// What becomes of a value from the moment when only saved tensors hold it.
struct Action {
  /// The three things that may become of it.
  enum class Kind : uint8_t {
    kKeep,       ///< stays; what a policy drops is dropped all the same
    kHold,       ///< held in the action's form
    kRecompute,  ///< freed, and recomputed when it is used
  };
  static constexpr uint16_t kNever = UINT16_MAX;  ///< of held_from: the value is freed after each recompute

  Kind kind = Kind::kKeep;  ///< which of them
  /// Of kRecompute, otherwise 0. Recomputing a value runs operators that may make other freed values, too: each time is
  /// counted, and from this time on, the first being 1, the value is held until its last use. Before, and always with
  /// kNever, it is freed again as soon as the recompute that made it is done with it.
  uint16_t held_from = 0;
  Form form = Form::kPacked;  ///< of kHold, otherwise kPacked

  static const Action kKeep;               ///< stays
  static const Action kPack;               ///< held in the form kPacked
  static const Action kMove;               ///< held in the form kMoved
  static const Action kRecompute;          ///< held from the first time on
  static const Action kRecomputeEachTime;  ///< held for its own use alone

  /// Held from time `from` on, at least 1; later than kNever is kNever.
  static constexpr Action recompute(int64_t from) {
    return {Kind::kRecompute, from < kNever ? static_cast<uint16_t>(from) : kNever};
  }
  /// Whether it is held once it has been made `times` times since it was freed.
  constexpr bool holds(int64_t times) const { return held_from != kNever && times >= held_from; }

  bool operator==(const Action&) const = default;
};
inline constexpr Action Action::kKeep{};
inline constexpr Action Action::kPack{Kind::kHold, 0, Form::kPacked};
inline constexpr Action Action::kMove{Kind::kHold, 0, Form::kMoved};
inline constexpr Action Action::kRecompute{Kind::kRecompute, 1};
inline constexpr Action Action::kRecomputeEachTime{Kind::kRecompute, kNever};

/// An Action for each value of one graph, and what a step under them is predicted to take. Plain data.
struct Plan {
  static constexpr int kVersion = 3;        ///< of the JSON that to_json() writes
  static constexpr int kOldestVersion = 2;  ///< that is read: it has no forms, and moves nothing

  std::string planner;                   ///< who made it: "auto"
  uint64_t graph_fingerprint = 0;        ///< of the graph that it is for
  int64_t budget_bytes = 0;              ///< that it was made for; baseline included
  int64_t predicted_peak_bytes = 0;      ///< by the simulator; baseline included
  double predicted_seconds = 0;          ///< of replays, packing, unpacking and waiting for copies, by the simulator
  std::map<Form, FormCosts> forms = {};  ///< what the prediction takes each form to cost
  std::vector<Action> actions;           ///< one for each value of the graph

  /// Empty if the plan can be followed on `graph`, otherwise what is wrong: another fingerprint or number of actions,
  /// values that cannot be recomputed, packed or moved.
  std::string problem(const Graph& graph) const;
  /// Whether there is no problem().
  bool is_valid(const Graph& graph) const { return problem(graph).empty(); }

  bool operator==(const Plan&) const = default;
};

/// JSON with the names above, actions as {"recompute": {"1": [values], ...}, "pack": [values], "move": [values],
/// "keep": [values]}.
std::string to_json(const Plan& plan);
/// What to_json() wrote, now or from kOldestVersion on. Throws Error on anything else. Whether it suits a graph,
/// Plan::problem() says.
Plan plan_from_json(std::string_view text);

}  // namespace remat
