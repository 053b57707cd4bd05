#include "session/plan_follower.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "device/device.h"
#include "session/graph_match.h"
#include "tape/tape.h"

namespace remat {
namespace {

constexpr size_t kRun = 3;            ///< operators that must be found in a row near the expected place ...
constexpr size_t kPlacesPerRun = 32;  ///< ... and one more for each so many places away
constexpr size_t kLongestRun = 16;
constexpr size_t kFewGaps = 8;  ///< in any step
constexpr size_t kOperatorsPerGap = 16;
constexpr size_t kMostLost = 64;   ///< operations in a row
constexpr size_t kMostLooks = 16;  ///< at the sizes of a step, on average

uint32_t signature(std::string_view name, size_t results) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(name) * 31 + results);
}

}  // namespace

bool PlanFollower::matches(const Tape& tape, size_t index, size_t place) const {
  const Graph& graph = schedules.front()->graph;
  if (place >= graph.operators.size()) return false;
  const Operation& operation = tape.program[index];
  const GraphOperator& planned = graph.operators[place];
  if (planned.results.size() != operation.value_count) return false;
  return operation.info == nullptr || operation.info->base_view() == planned.name;  // null: forgotten since
}

/// Of an operation that stands for one of the graph.
bool PlanFollower::has_size(const Tape& tape, size_t index) const {
  const Graph& graph = schedules.front()->graph;
  const Operation& operation = tape.program[index];
  const GraphOperator& planned = graph.operators[planned_[index]];
  for (uint32_t r = 0; r < operation.value_count; ++r) {
    const Value& value = tape.values[operation.first_value + r];
    if (value.producer == index &&
        graph.values[static_cast<size_t>(planned.results[r])].bytes != value.counted_bytes()) {
      return false;
    }
  }
  return true;
}

void PlanFollower::abandon() {
  schedules.clear();
  planned_.clear();
}

/// Goes on with another known step, if the operators so far, and `of_size` their sizes, are its first ones.
bool PlanFollower::change_to_known(const Tape& tape, bool of_size) {
  if (gaps_ > 0) return false;
  const auto fits = [&](const auto& schedule) {
    const bool exact = of_size || schedule->structure == 0;
    return exact ? begins_like(tape, schedule->graph) : runs_operators_of(tape, schedule->graph);
  };
  const auto known = std::find_if(schedules.begin() + 1, schedules.end(), fits);
  if (known == schedules.end()) return false;
  schedules.erase(schedules.begin(), known);
  planned_.resize(tape.program.size());
  for (size_t index = 0; index < planned_.size(); ++index) planned_[index] = static_cast<uint32_t>(index);
  next_ = planned_.size();
  found_none_ = approximate_ = false;
  return true;
}

void PlanFollower::note_results(const Tape& tape) {
  const Operation& last = tape.program[tape.program.size() - 1];
  int64_t bytes = result_bytes.empty() ? 0 : result_bytes.back();
  for (ValueId made = last.first_value; made < last.first_value + last.value_count; ++made) {
    bytes += tape.values[made].counted_bytes();
  }
  result_bytes.push_back(bytes);
}

OperationId PlanFollower::advance(const Tape& tape) {
  if (notes_results) note_results(tape);
  if (schedules.empty()) return kNoId;
  const size_t index = tape.program.size() - 1;
  if (lost_ == 0 && matches(tape, index, next_)) {
    planned_.push_back(static_cast<uint32_t>(next_++));
    return !has_size(tape, index) && check_sizes(tape) ? 0 : kNoId;
  }
  if (lost_ == 0) {
    if (change_to_known(tape, /*of_size=*/true)) return 0;
    if (change_to_known(tape, /*of_size=*/false)) {
      check_sizes(tape);
      return 0;
    }
    ++gaps_;
    const bool too_many = gaps_ > kFewGaps + index / kOperatorsPerGap;
    if (schedules.front()->structure == 0 || too_many) {
      abandon();
      return kNoId;
    }
  }
  planned_.push_back(kLost);
  ++lost_;
  ++all_lost_;
  return take_up_again(tape);
}

/// Results have other bytes than the schedule says. True if another schedule is followed from now on.
bool PlanFollower::check_sizes(const Tape& tape) {
  const size_t index = tape.program.size() - 1;
  if (index < next_look_) return false;
  if (change_to_known(tape, /*of_size=*/true)) return true;
  if (schedules.front()->structure == 0) {
    abandon();
    return false;
  }
  if (!resize) return false;
  ++resizes_;
  // It costs half of the recording of all operators.
  next_look_ = index + std::max(resizes_ * resizes_, schedules.front()->graph.operators.size() / kMostLooks);
  auto better = resize(schedules.front(), seen(tape));
  found_none_ = better == nullptr;
  if (found_none_) return false;
  approximate_ = better == schedules.front();
  schedules.front() = std::move(better);
  return !approximate_;
}

OperationId PlanFollower::take_up_again(const Tape& tape) {
  if (lost_ > kMostLost) {
    abandon();
    return kNoId;
  }
  const Graph& graph = schedules.front()->graph;
  if (signatures_.size() != graph.operators.size()) {
    signatures_.clear();
    places_.clear();
    for (const GraphOperator& op : graph.operators) {
      const uint32_t own = signature(op.name, op.results.size());
      places_[own].push_back(static_cast<uint32_t>(signatures_.size()));
      signatures_.push_back(own);
    }
  }
  const auto [place, run] = find_place(tape);
  if (run == 0) return kNoId;
  for (size_t back = 0; back < run; ++back) {
    planned_[planned_.size() - 1 - back] = static_cast<uint32_t>(place - back);
  }
  all_lost_ -= run;
  next_ = place + 1;
  lost_ = 0;
  return check_sizes(tape) ? 0 : static_cast<OperationId>(planned_.size() - run);
}

/// The nearest place of the last operation in the graph where so many of the lost ones are found in a row that it is no
/// coincidence: the farther, the more. One place alone will do.
PlanFollower::Place PlanFollower::find_place(const Tape& tape) const {
  std::vector<uint32_t> wanted;  // the last first
  for (size_t back = 0; back < std::min(lost_, kLongestRun); ++back) {
    const Operation& operation = tape.program[tape.program.size() - 1 - back];
    if (operation.info == nullptr) break;
    wanted.push_back(signature(operation.info->base_view(), operation.value_count));
  }
  if (wanted.empty()) return {};
  const auto found = places_.find(wanted.front());
  if (found == places_.end()) return {};
  const std::vector<uint32_t>& places = found->second;
  const auto run_at = [&](size_t place) {
    size_t run = 0;
    while (run < wanted.size() && run <= place && signatures_[place - run] == wanted[run]) ++run;
    return run;
  };
  const size_t expected = next_ + lost_ - 1;
  // No run is long enough for a place farther away.
  constexpr size_t kFarthest = kPlacesPerRun * (kLongestRun - kRun + 1);
  Place best;
  size_t best_distance = SIZE_MAX;
  auto candidate = std::ranges::lower_bound(places, expected - std::min(expected, kFarthest));
  for (; candidate != places.end() && *candidate <= expected + kFarthest; ++candidate) {
    const size_t place = *candidate;
    const size_t run = run_at(place);
    const size_t distance = place >= expected ? place - expected : expected - place;
    if (run < kRun + distance / kPlacesPerRun || distance >= best_distance) continue;
    best = {place, run};
    best_distance = distance;
  }
  const bool only = places.size() == 1 && places.front() > expected;
  return best.run == 0 && only ? Place{places.front(), run_at(places.front())} : best;
}

PlanFollower::Seen PlanFollower::seen(const Tape& tape) const {
  const Graph& graph = schedules.front()->graph;
  Seen result;
  result.bytes.assign(graph.values.size(), -1);
  result.away.assign(graph.values.size(), false);
  for (size_t o = 0; o < next_; ++o) {
    for (const int32_t made : graph.operators[o].results) result.bytes[static_cast<size_t>(made)] = 0;
  }
  for (size_t index = 0; index < planned_.size(); ++index) {
    if (planned_[index] == kLost) continue;
    const Operation& operation = tape.program[index];
    const GraphOperator& planned = graph.operators[planned_[index]];
    for (uint32_t r = 0; r < operation.value_count; ++r) {
      const auto made = static_cast<size_t>(planned.results[r]);
      const Value& value = tape.values[operation.first_value + r];
      // What was forgotten since says nothing any more.
      const int64_t bytes = value.producer == index ? value.counted_bytes() : graph.values[made].bytes;
      result.bytes[made] = std::max<int64_t>(0, result.bytes[made]) + bytes;
      result.away[made] =
          result.away[made] || value.account == PlainAccount::kPlainOnly || value.form.contents != nullptr;
    }
  }
  return result;
}

std::optional<Action> PlanFollower::action_of(const Tape& tape, ValueId value) const {
  if (schedules.empty()) return std::nullopt;
  const OperationId producer = tape.values[value].producer;
  if (producer == kNoId || producer >= planned_.size() || planned_[producer] == kLost) return Action::kKeep;
  const Schedule& schedule = *schedules.front();
  const std::vector<int32_t>& results = schedule.graph.operators[planned_[producer]].results;
  const size_t result = value - tape.program[producer].first_value;
  if (result >= results.size()) return Action::kKeep;
  return schedule.plan.actions[static_cast<size_t>(results[result])];
}

std::vector<double> PlanFollower::seconds(const Tape& tape) const {
  std::vector<double> result(schedules.front()->graph.operators.size(), -1);
  // On a device with streams it is known only how long they took to be launched.
  if (!tape.times && device::may_have_streams(tape.values.device)) return result;
  for (size_t index = 0; index < planned_.size(); ++index) {
    if (planned_[index] != kLost) result[planned_[index]] = tape.program[index].seconds;
  }
  return result;
}

std::shared_ptr<const Schedule> PlanFollower::followed_to_the_end(const Tape& tape) const {
  if (schedules.empty() || found_none_) return nullptr;
  // What comes after backward, copies of results for a log, may be there or not.
  const Graph& graph = schedules.front()->graph;
  const auto matters = [&](const GraphOperator& op) {
    return std::ranges::any_of(op.results, [&](int32_t v) { return graph.values[static_cast<size_t>(v)].returns(); });
  };
  const auto next = graph.operators.begin() + static_cast<std::ptrdiff_t>(next_);
  const bool to_the_end = std::none_of(next, graph.operators.end(), matters);
  const bool mostly = 4 * all_lost_ <= tape.program.size();
  return to_the_end && mostly ? schedules.front() : nullptr;
}

}  // namespace remat
