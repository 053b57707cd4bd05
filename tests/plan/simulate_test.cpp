#include "plan/simulate.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "plan/costs.h"
#include "random_graph.h"
#include "step_builder.h"
#include "support/actions.h"

namespace remat::test {
namespace {

/// The same step, told plainly: what is alive is a set, and its bytes are added up anew at every moment.
class NaiveStep {
 public:
  NaiveStep(const Graph& graph, const std::vector<Action>& actions) : graph_(graph), actions_(actions) {}

  Simulation run() {
    other_ = graph_.baseline_bytes;
    // Plain's level counts every value that is saved from the moment it was made: what is gone is taken off.
    for (size_t e = 0; e < graph_.events.size(); ++e) {
      const auto& event = graph_.events[e];
      const int32_t v = event.index;
      if (event.kind == GraphEvent::Kind::kIdle) {
        uses_[v] = uses_after(e);
        times_made_[v] = 0;
        put_away(v);
      }
      if (event.kind == GraphEvent::Kind::kUse) ask(v);
      if (event.kind == GraphEvent::Kind::kFree) {
        other_ -= graph_.values[size_t(v)].bytes;
        dropped_.erase(v);
        bits_.erase(v);
        freed_.insert(v);
      }
      look(event.step_rise());
      other_ += event.delta;
    }
    return result_;
  }

 private:
  /// Of the value that becomes idle at event `e`, until it is idle again.
  int uses_after(size_t e) const {
    int uses = 0;
    for (size_t later = e + 1; later < graph_.events.size(); ++later) {
      const auto& event = graph_.events[later];
      if (event.kind == GraphEvent::Kind::kOperator || event.index != graph_.events[e].index) continue;
      if (event.kind == GraphEvent::Kind::kIdle) break;
      if (event.kind == GraphEvent::Kind::kUse) ++uses;
    }
    return uses;
  }

  int64_t level() const {
    int64_t bytes = other_;
    for (const int32_t v : dropped_) bytes -= graph_.values[size_t(v)].bytes;
    for (const int32_t v : bits_) bytes += graph_.values[size_t(v)].packed_bytes;
    for (const int32_t v : replayed_) bytes += graph_.values[size_t(v)].bytes;
    return bytes;
  }
  void look(int64_t extra) { result_.peak_bytes = std::max(result_.peak_bytes, level() + extra); }

  void put_away(int32_t v) {
    const GraphValue& value = graph_.values[size_t(v)];
    const Action action = value.dropped ? Action::kRecompute : actions_[size_t(v)];
    if (action == Action::kKeep || !(value.droppable || value.dropped)) return;
    dropped_.insert(v);
    if (action != Action::kPack || !bits_.insert(v).second) return;
    result_.seconds += kPackSecondsPerByte * double(graph_.values[size_t(v)].bytes);
  }

  void ask(int32_t v) {
    bring_back(v);
    --uses_[v];
  }

  bool is_saved(int32_t v) const { return graph_.values[size_t(v)].droppable || graph_.values[size_t(v)].dropped; }
  bool is_there(int32_t v) const {
    if (graph_.values[size_t(v)].producer < 0 || replayed_.count(v) > 0) return true;
    return is_saved(v) && dropped_.count(v) == 0 && freed_.count(v) == 0;
  }

  void unpack(int32_t v) {
    dropped_.erase(v);
    look(0);
    result_.seconds += kUnpackSecondsPerByte * double(graph_.values[size_t(v)].bytes);
  }

  void bring_back(int32_t target) {
    if (is_there(target)) return;
    if (bits_.count(target) > 0) return unpack(target);
    std::set<int32_t> operators;
    find(target, operators);
    while (!operators.empty()) {
      const int32_t o = *operators.begin();
      operators.erase(operators.begin());
      run(o, target, operators);
    }
  }

  void find(int32_t v, std::set<int32_t>& operators) const {
    if (is_there(v) || bits_.count(v) > 0) return;
    const int32_t producer = graph_.values[size_t(v)].producer;
    if (!operators.insert(producer).second) return;
    for (const int32_t input : graph_.operators[size_t(producer)].inputs) find(input, operators);
  }

  bool read_by(const std::set<int32_t>& operators, int32_t v) const {
    for (const int32_t o : operators) {
      const auto& inputs = graph_.operators[size_t(o)].inputs;
      if (std::find(inputs.begin(), inputs.end(), v) != inputs.end()) return true;
    }
    return false;
  }

  void run(int32_t o, int32_t target, const std::set<int32_t>& to_come) {
    const GraphOperator& op = graph_.operators[size_t(o)];
    for (const int32_t input : op.inputs) {
      if (bits_.count(input) > 0 && dropped_.count(input) > 0) unpack(input);
    }
    for (const int32_t input : op.overwritten) {
      if (!read_by(to_come, input)) replayed_.erase(input);  // its storage becomes the result's
    }
    int64_t made = 0;
    for (const int32_t v : op.results) made += graph_.values[size_t(v)].bytes;
    look(made + op.scratch_bytes);
    result_.seconds += op.replay_seconds;
    ++result_.replays;
    for (const int32_t v : op.results) {
      if (is_there(v)) continue;
      const Action action = actions_[size_t(v)];
      const bool too_early = action.kind == Action::Kind::kRecompute &&
                             (action == Action::kRecomputeEachTime || ++times_made_[v] < action.held_from);
      if (v == target || (is_saved(v) && uses_[v] > 0 && !too_early)) {
        dropped_.erase(v);
      } else if (read_by(to_come, v)) {
        replayed_.insert(v);
      }
    }
    for (const int32_t input : op.inputs) {
      if (!read_by(to_come, input)) replayed_.erase(input);
    }
  }

  const Graph& graph_;
  const std::vector<Action>& actions_;
  int64_t other_ = 0;
  std::set<int32_t> dropped_, bits_, freed_;
  std::set<int32_t> replayed_;  ///< alive in the replay in progress alone
  std::map<int32_t, int> uses_, times_made_;
  Simulation result_;
};

TEST(Simulator, AgreesWithAPlainAccountOfWhatIsAlive) {
  std::mt19937 random(1);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(3 + static_cast<int>(seed % 30));
    ASSERT_EQ(graph.problem(), "") << seed;
    Simulator simulator(graph);
    for (int i = 0; i < 10; ++i) {
      const auto actions = random_actions(graph, random);
      const Simulation expected = NaiveStep(graph, actions).run();
      const Simulation simulated = simulator.run(actions);
      ASSERT_EQ(simulated.peak_bytes, expected.peak_bytes) << "graph " << seed << ", actions " << i;
      ASSERT_EQ(simulated.replays, expected.replays) << "graph " << seed << ", actions " << i;
      ASSERT_NEAR(simulated.seconds, expected.seconds, 1e-9) << "graph " << seed << ", actions " << i;
    }
  }
}

TEST(Simulator, HoldsAValueFromTheTimeThatItsActionSays) {
  // v1 = a(leaf), v2 = b(v1), v3 = c(v1), v4 = d(v1): each is saved, and the uses of v4, v3 and v2 make v1 each time.
  StepBuilder step;
  const int32_t first = step.saved({0}, 1000);
  for (int i = 0; i < 3; ++i) step.saved({first}, 10);
  const Graph graph = step.graph();
  const auto replays = [&](Action action) {
    std::vector<Action> actions(graph.values.size(), Action::kKeep);
    for (size_t v = size_t(first) + 1; v < actions.size(); ++v) actions[v] = Action::kRecompute;
    actions[size_t(first)] = action;
    return Simulator(graph).run(actions).replays;
  };
  // Three for the others, and those that make the first.
  EXPECT_EQ(replays(Action::recompute(1)), 3 + 1);
  EXPECT_EQ(replays(Action::recompute(2)), 3 + 2);
  EXPECT_EQ(replays(Action::recompute(3)), 3 + 3);
  EXPECT_EQ(replays(Action::recompute(4)), 3 + 4);  // its own use makes it the fourth time
  EXPECT_EQ(replays(Action::kRecomputeEachTime), 3 + 4);
}

TEST(Simulator, StopsWhereItIsTold) {
  const Graph graph = RandomGraph(1).make(30);
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v)
    actions[v] = graph.values[v].droppable ? Action::kRecomputeEachTime : Action::kKeep;
  Simulator simulator(graph);
  const Simulation whole = simulator.run(actions);
  EXPECT_FALSE(whole.stopped);
  const Simulation part = simulator.run(actions, whole.replays / 2);
  EXPECT_TRUE(part.stopped);
  EXPECT_GT(part.replays, whole.replays / 2);
  EXPECT_LT(part.replays, whole.replays);
  const Simulation just = simulator.run(actions, whole.replays);
  EXPECT_FALSE(just.stopped);
  EXPECT_EQ(just.seconds, whole.seconds);
}

TEST(Simulator, HasPlainsPeakWhereEverythingIsKept) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Graph graph = RandomGraph(seed).make(20);
    const int64_t with_reuse = Simulator(graph).run(std::vector<Action>(graph.values.size(), Action::kKeep)).peak_bytes;
    EXPECT_LE(with_reuse, graph.plain_peak_bytes());
    for (auto& event : graph.events) event.reused = 0;
    int64_t level = graph.baseline_bytes, peak = level;
    for (const auto& event : graph.events) {
      if (event.kind == GraphEvent::Kind::kFree) level -= graph.values[static_cast<size_t>(event.index)].bytes;
      peak = std::max(peak, level + event.rise);
      level += event.delta;
    }
    const Simulation run = Simulator(graph).run(std::vector<Action>(graph.values.size(), Action::kKeep));
    EXPECT_EQ(run.peak_bytes, peak);
    EXPECT_EQ(graph.plain_peak_bytes(), peak);
    EXPECT_EQ(run.seconds, 0);
    EXPECT_EQ(run.replays, 0);
  }
}

TEST(Simulator, DropsWhatAPolicyDropsAsAPlanWould) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Graph by_policy = RandomGraph(seed).with_policies().make(20);
    Graph by_plan = by_policy;
    std::vector<Action> keep(by_policy.values.size(), Action::kKeep), drop = keep;
    for (size_t v = 0; v < drop.size(); ++v) {
      if (!by_policy.values[v].dropped) continue;
      by_plan.values[v].droppable = true;
      by_plan.values[v].dropped = false;
      drop[v] = Action::kRecompute;
    }
    const Simulation policy = Simulator(by_policy).run(keep), plan = Simulator(by_plan).run(drop);
    EXPECT_EQ(policy.peak_bytes, plan.peak_bytes) << seed;
    EXPECT_EQ(policy.replays, plan.replays) << seed;
    EXPECT_EQ(policy.seconds, plan.seconds) << seed;
  }
}

}  // namespace
}  // namespace remat::test
