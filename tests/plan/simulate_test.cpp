#include "plan/simulate.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "plan/form_costs.h"
#include "plan/step_times.h"
#include "random_graph.h"
#include "step_builder.h"
#include "support/actions.h"

namespace remat::test {
namespace {

/// The same step, told plainly: what is alive is a set, and its bytes are added up anew at every moment.
class NaiveStep {
 public:
  NaiveStep(const Graph& graph, const std::vector<Action>& actions, int64_t limit = INT64_MAX)
      : graph_(graph), actions_(actions), limit_(limit) {}

  Simulation run() {
    other_ = graph_.baseline_bytes;
    // Plain's level counts every value that is saved from the moment it was made: what is gone is taken off.
    for (size_t e = 0; e < graph_.events.size(); ++e) {
      const auto& event = graph_.events[e];
      const int32_t v = event.index;
      began_ = times_.stretches[e + 1].begin_seconds;
      if (event.kind == GraphEvent::Kind::kIdle) {
        uses_[v] = uses_after(e);
        times_made_[v] = 0;
        put_away(v);
      }
      if (event.kind == GraphEvent::Kind::kUse) ask(v);
      if (event.kind == GraphEvent::Kind::kFree) {
        other_ -= graph_.values[size_t(v)].bytes;
        if (files_.erase(v) > 0) in_files_ -= blocks_of(v);
        move_no_more(v);
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
    for (const int32_t v : coming_) bytes += graph_.values[size_t(v)].bytes;
    return bytes;
  }
  void look(int64_t extra) {
    while (level() + extra > limit_ && !leaving_.empty()) go_oldest();
    while (level() + extra > limit_ && !coming_.empty()) {
      wait(coming_.back());
      away_.push_back(coming_.back());
      coming_.pop_back();
    }
    result_.peak_bytes = std::max(result_.peak_bytes, level() + extra);
  }

  void put_away(int32_t v) {
    const GraphValue& value = graph_.values[size_t(v)];
    const Action action = value.dropped ? Action::kRecompute : actions_[size_t(v)];
    if (action == Action::kKeep || !(value.droppable || value.dropped)) return;
    if (action == Action::kMove) return move_out(v);
    dropped_.insert(v);
    if (action != Action::kPack || !bits_.insert(v).second) return;
    result_.seconds += kPackingCosts.out.compute * double(graph_.values[size_t(v)].bytes);
  }

  // Values that are moved: out in the order in which they become idle, the bytes gone when four more are leaving; back
  // the last first, two at a time, as soon as one of them is asked for. Above the limit what is leaving goes first,
  // then what is coming waits.

  void copy(int32_t v, const FormCosts::Seconds& costs) {
    const auto bytes = double(graph_.values[size_t(v)].bytes);
    const double each = graph_.tier->copy_seconds;
    result_.seconds += each + costs.compute * bytes;
    copier_free_ = std::max(copier_free_, began_ + result_.seconds) + each + costs.copy * bytes;
    copied_[v] = copier_free_;
  }
  void wait(int32_t v) { result_.seconds = std::max(result_.seconds, copied_[v] - began_); }

  int64_t blocks_of(int32_t v) const { return (graph_.values[size_t(v)].bytes + 4095) / 4096 * 4096; }

  void move_out(int32_t v) {
    if (files_.count(v) > 0) {  // a backward pass has asked for it: for the next one it is the last
      away_.insert(away_.begin(), v);
      dropped_.insert(v);
      return;
    }
    files_.insert(v);
    in_files_ += blocks_of(v);
    result_.tier_bytes = std::max(result_.tier_bytes, in_files_);
    copy(v, graph_.tier->costs.out);
    leaving_.push_back(v);
    if (leaving_.size() > 4) go_oldest();
  }
  void go_oldest() {
    const int32_t gone = leaving_.front();
    leaving_.erase(leaving_.begin());
    wait(gone);
    if (held_.count(gone) > 0) return;
    dropped_.insert(gone);
    away_.push_back(gone);
  }

  void come_back() {
    while (coming_.size() < 2 && !away_.empty() && level() + graph_.values[size_t(away_.back())].bytes <= limit_) {
      coming_.push_back(away_.back());
      away_.pop_back();
      look(0);
      copy(coming_.back(), graph_.tier->costs.in);
    }
  }
  bool is_away(int32_t v) const { return files_.count(v) > 0 && dropped_.count(v) > 0; }
  void move_in(int32_t v) {
    if (std::erase(away_, v) > 0) {
      look(graph_.values[size_t(v)].bytes);
      copy(v, graph_.tier->costs.in);
    }
    wait(v);
    std::erase(coming_, v);
    dropped_.erase(v);
    come_back();
  }
  void move_no_more(int32_t v) {
    for (auto* const list : {&leaving_, &away_, &coming_}) std::erase(*list, v);
  }

  void ask(int32_t v) {
    if (std::erase(leaving_, v) > 0) {
      files_.erase(v);
      in_files_ -= blocks_of(v);
      come_back();
    }
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
    result_.seconds += kPackingCosts.in.compute * double(graph_.values[size_t(v)].bytes);
  }

  void bring_back(int32_t target) {
    if (is_there(target)) return;
    if (is_away(target)) return move_in(target);
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
    if (is_there(v) || is_away(v) || bits_.count(v) > 0) return;
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
      if (!is_there(input) && is_away(input)) {
        move_in(input);
      } else if (!is_there(input) && bits_.count(input) > 0) {
        unpack(input);
      }
      held_.insert(input);
    }
    for (const int32_t input : op.overwritten) {
      if (!read_by(to_come, input)) replayed_.erase(input);  // its storage becomes the result's
    }
    int64_t made = 0;
    for (const int32_t v : op.results) made += graph_.values[size_t(v)].bytes;
    look(made + op.scratch_bytes);
    held_.clear();
    result_.seconds += op.replay_seconds;
    ++result_.replays;
    for (const int32_t v : op.results) {
      if (is_there(v)) continue;
      const Action action = actions_[size_t(v)];
      const bool too_early = action.kind == Action::Kind::kRecompute &&
                             (action == Action::kRecomputeEachTime || ++times_made_[v] < action.held_from);
      if (v == target || (is_saved(v) && uses_[v] > 0 && !too_early)) {
        dropped_.erase(v);
        move_no_more(v);
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
  const int64_t limit_;
  int64_t other_ = 0;
  std::set<int32_t> dropped_, bits_, freed_;
  std::set<int32_t> replayed_;  ///< alive in the replay in progress alone
  std::map<int32_t, int> uses_, times_made_;
  const StepTimes times_ = step_times(graph_);
  std::vector<int32_t> leaving_, away_, coming_;
  std::set<int32_t> held_;  ///< read by the operator that a replay runs
  std::set<int32_t> files_;
  int64_t in_files_ = 0;
  double began_ = 0, copier_free_ = 0;
  std::map<int32_t, double> copied_;
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

TEST(Simulator, AgreesWhereValuesAreMoved) {
  std::mt19937 random(2);
  double waited = 0;
  int made_room = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(3 + static_cast<int>(seed % 40));
    graph.tier = Tier{.costs = {{1e-7, 1e-6 * double(seed % 90)}, {2e-7, 2e-6 * double(seed % 70)}},
                      .copy_seconds = 1e-5 * double(seed % 3),
                      .bytes = 1 << 20};
    Simulator simulator(graph);
    for (int i = 0; i < 10; ++i) {
      auto actions = random_actions(graph, random);
      for (size_t v = 0; v < actions.size(); ++v) {
        if (graph.values[v].droppable && random() % 3 > 0) actions[v] = Action::kMove;
      }
      // Of the ten, six in ever less memory, from above what the step takes to less than it can do with.
      const int64_t room = graph.plain_peak_bytes() - graph.baseline_bytes;
      const int64_t limit = i < 4 ? INT64_MAX : graph.baseline_bytes + room * (10 - i) / 6;
      const Simulation expected = NaiveStep(graph, actions, limit).run();
      const Simulation simulated = simulator.run(actions, limit);
      ASSERT_EQ(simulated.peak_bytes, expected.peak_bytes) << "graph " << seed << ", actions " << letters(actions);
      ASSERT_EQ(simulated.replays, expected.replays) << "graph " << seed << ", actions " << letters(actions);
      ASSERT_NEAR(simulated.seconds, expected.seconds, 1e-9) << "graph " << seed << ", actions " << letters(actions);
      ASSERT_EQ(simulated.tier_bytes, expected.tier_bytes) << "graph " << seed << ", actions " << letters(actions);
      waited += simulated.seconds;
      if (simulated.peak_bytes < simulator.run(actions).peak_bytes) ++made_room;
    }
  }
  EXPECT_GT(waited, 1);
  EXPECT_GT(made_room, 100);
}

TEST(Simulator, WaitsForCopiesAndForNothingElse) {
  // Ten values of 100 bytes, a second of computation each and two in backward.
  const Graph plain = plain_chain(std::vector<std::pair<int64_t, double>>(10, {100, 1}));
  const auto seconds = [&](double each_way) {
    Graph graph = plain;
    graph.tier = Tier{.costs = {{0, each_way / 100}, {0, each_way / 100}}, .bytes = 100'000};
    std::vector<Action> actions(graph.values.size(), Action::kMove);
    actions[0] = Action::kKeep;
    return Simulator(graph).run(actions);
  };
  EXPECT_EQ(seconds(0.9).seconds, 0) << "they run beside the computation";
  EXPECT_EQ(seconds(0).peak_bytes, seconds(100).peak_bytes) << "the order does not depend on times";
  EXPECT_LT(seconds(0).peak_bytes, plain.plain_peak_bytes() * 2 / 3);
  EXPECT_EQ(seconds(0).tier_bytes, 10 * 4096) << "whole blocks";
  // Ten copies out and six back, one after another: the last four are still there.
  EXPECT_GT(seconds(100).seconds, 16 * 100 - 10 * 3);
  EXPECT_LT(seconds(100).seconds, 20 * 100);
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
  const Simulation part = simulator.run(actions, INT64_MAX, whole.replays / 2);
  EXPECT_TRUE(part.stopped);
  EXPECT_GT(part.replays, whole.replays / 2);
  EXPECT_LT(part.replays, whole.replays);
  const Simulation just = simulator.run(actions, INT64_MAX, whole.replays);
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
