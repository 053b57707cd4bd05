#include "plan/incremental.h"

#include <algorithm>
#include <cmath>

namespace remat {
namespace {

/// In a section, at least. With more sections more of the step is skipped, but their sums take longer.
constexpr size_t kFewestChanges = 16;

constexpr int64_t kWorkOfRun = 200, kWorkOfChange = 5, kWorkOfReplay = 50, kWorkOfValue = 10;

size_t changes_per_section(size_t changes) {
  return std::max(kFewestChanges, static_cast<size_t>(std::sqrt(static_cast<double>(changes)) / 2));
}

}  // namespace

IncrementalSimulator::IncrementalSimulator(const Graph& graph)
    : graph_(graph),
      changes_(changes_of(graph)),
      initial_(initial_states(graph)),
      history_(graph.values.size()),
      actions_(graph.values.size(), Action::kKeep),
      machine_(graph, view_, policy_),
      states_(initial_),
      loaded_(graph.values.size(), 0),
      different_(graph.values.size(), 0) {
  const size_t length = changes_per_section(changes_.size());
  for (size_t first = 0; first < changes_.size(); first += length) {
    Section& section = sections_.emplace_back();
    section.first = &changes_[first];
    section.end = changes_.data() + std::min(changes_.size(), first + length);
  }
  used_.resize(sections_.size());
  waiting_.resize(sections_.size(), 0);
  restart(actions_, INT64_MAX);
}

void IncrementalSimulator::restart(const std::vector<Action>& actions, int64_t limit) {
  reject();
  limit_ = limit;
  actions_ = actions;
  std::fill(waiting_.begin(), waiting_.end(), run_);
  run();
  accept();
}

void IncrementalSimulator::change(int32_t value, Action action) {
  if (actions_[value] == action) return;
  changed_.emplace_back(value, actions_[value]);
  actions_[value] = action;
  wake(value, -1);
}

void IncrementalSimulator::reject() {
  for (size_t c = changed_.size(); c-- > 0;) actions_[changed_[c].first] = changed_[c].second;
  changed_.clear();
  tried_count_ = 0;
  ++run_;
}

/// Every section after section `after` that used the value has to run again.
void IncrementalSimulator::wake(int32_t value, int64_t after) {
  const std::vector<Entry>& entries = history_[value];
  for (size_t i = entries.size(); i-- > 0 && static_cast<int64_t>(entries[i].section) > after;) {
    waiting_[entries[i].section] = run_;
  }
}

const ValueState& IncrementalSimulator::before(int32_t value, uint32_t section) const {
  const std::vector<Entry>& entries = history_[value];
  for (size_t i = entries.size(); i-- > 0;) {
    if (entries[i].section < section) return entries[i].state;
  }
  return initial_[value];
}

void IncrementalSimulator::load(int32_t value) {
  loaded_[value] = load_;
  used_now_.push_back(value);
  // Where the value differs, no section that used it was skipped, so its state is up to date.
  if (different_[value] != run_) states_[value] = before(value, section_);
}

/// Finds out whether the state of `value` after `section` differs from that in force. Where it begins to differ, the
/// later sections that used it have to run.
void IncrementalSimulator::compare(int32_t value, uint32_t section) {
  const bool was = different_[value] == run_;
  const bool is = states_[value] != before(value, section + 1);
  if (is && !was) wake(value, section);
  different_[value] = is ? run_ : 0;
}

void IncrementalSimulator::try_section(uint32_t index) {
  if (tried_count_ == tried_.size()) tried_.emplace_back();
  Tried& tried = tried_[tried_count_++];
  tried.section = section_ = index;
  tried.outcome = sections_[index];
  Section& outcome = tried.outcome;
  ++load_;
  used_now_.clear();
  outcome.peak = INT64_MIN;
  machine_.level = 0;
  machine_.seconds = 0;
  const int64_t replays = machine_.replays;
  machine_.run(outcome.first, outcome.end, [&](const StepChange& change, int64_t highest) {
    if (highest > outcome.peak) {
      outcome.peak = highest;
      outcome.peak_event = change.event;
    }
    return true;
  });
  outcome.level = machine_.level;
  outcome.seconds = machine_.seconds;
  outcome.replays = machine_.replays - replays;
  work_ += kWorkOfChange * (outcome.end - outcome.first) + kWorkOfReplay * outcome.replays +
           kWorkOfValue * static_cast<int64_t>(used_now_.size() + used_[index].size());
  tried.left.clear();
  for (const int32_t v : used_now_) tried.left.emplace_back(v, states_[v]);
  for (const int32_t v : used_now_) compare(v, index);
  for (const int32_t v : used_[index]) {
    if (loaded_[v] == load_) continue;
    // With the actions in force the section used the value, now it does not: the value keeps its state.
    if (different_[v] != run_) states_[v] = before(v, index);
    compare(v, index);
  }
}

Simulation IncrementalSimulator::run(int64_t most_replays) {
  candidate_ = {};
  tried_count_ = 0;
  machine_.replays = 0;
  int64_t level = graph_.baseline_bytes;
  for (uint32_t s = 0; s < sections_.size(); ++s) {
    const bool waits = waiting_[s] == run_;
    if (waits) try_section(s);
    const Section& section = waits ? tried_[tried_count_ - 1].outcome : sections_[s];
    const int64_t peak = level + section.peak;
    if (peak > candidate_.peak_bytes) {
      candidate_.peak_bytes = peak;
      candidate_.peak_event = section.peak_event;
    }
    if (peak > limit_) candidate_.excess += static_cast<double>(peak - limit_);
    level += section.level;
    candidate_.seconds += section.seconds;
    candidate_.replays += section.replays;
    if (candidate_.replays > most_replays) {
      candidate_.stopped = true;
      break;
    }
  }
  work_ += kWorkOfRun + static_cast<int64_t>(sections_.size());
  return candidate_;
}

void IncrementalSimulator::accept() {
  for (size_t t = 0; t < tried_count_; ++t) {
    const Tried& tried = tried_[t];
    const uint32_t s = tried.section;
    sections_[s] = tried.outcome;
    work_ += kWorkOfValue * static_cast<int64_t>(tried.left.size() + used_[s].size());
    const auto place = [s](std::vector<Entry>& entries) {
      return std::lower_bound(entries.begin(), entries.end(), s,
                              [](const Entry& entry, uint32_t section) { return entry.section < section; });
    };
    ++load_;
    for (const auto& [v, state] : tried.left) {
      loaded_[v] = load_;
      std::vector<Entry>& entries = history_[v];
      const auto at = place(entries);
      if (at != entries.end() && at->section == s) {
        at->state = state;
      } else {
        entries.insert(at, {s, state});
      }
    }
    for (const int32_t v : used_[s]) {
      if (loaded_[v] != load_) history_[v].erase(place(history_[v]));
    }
    used_[s].clear();
    for (const auto& [v, state] : tried.left) used_[s].push_back(v);
  }
  result_ = candidate_;
  changed_.clear();
  tried_count_ = 0;
  ++run_;
}

}  // namespace remat
