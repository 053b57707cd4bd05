// The page: a template (page.html, page.css, page.js, page_tables.js, which CMake puts into page_template.h) and the
// data that its scripts draw.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <remat/error.h>
#include <remat/planner.h>
#include <remat/run.h>
#include <remat/timeline.h>

#include <remat/support/svg.h>
#include "report/costs.h"
#include "report/page_template.h"
#include "report/parts.h"

namespace remat {
namespace {

using nlohmann::json;

/// Names that many operators share, each written once.
class Names {
 public:
  int64_t index(const std::string& name) {
    const auto [place, added] = known_.try_emplace(name, static_cast<int64_t>(list_.size()));
    if (added) list_.push_back(name);
    return place->second;
  }
  const json& list() const { return list_; }

 private:
  std::map<std::string, int64_t> known_;
  json list_ = json::array();
};

/// The moments of a timeline as lists, one for each thing that is known of them. Times are differences in nanoseconds;
/// of a part of memory, which may stay the same for long, [moment, bytes, moment, bytes ...] where it changes.
json timeline_json(const Timeline& timeline) {
  const double scale = timeline.timed ? 1e9 : 1;
  json times = json::array(), indexes = json::array(), values = json::array();
  std::string work;
  int64_t before = 0;
  for (const TimelineMoment& moment : timeline.moments) {
    const int64_t now = std::llround(moment.begin_seconds * scale);
    times.push_back(now - before);
    before = now;
    work += "fbru"[static_cast<size_t>(moment.work)];
    indexes.push_back(moment.index);
    values.push_back(moment.value);
  }
  json parts = json::array();
  for (const PartStyle& part : kParts) {
    json changes = json::array();
    int64_t last = 0;
    for (size_t m = 0; m < timeline.moments.size(); ++m) {
      const int64_t bytes = timeline.moments[m].parts.*part.bytes;
      if (bytes == last) continue;
      changes.push_back(m);
      changes.push_back(last = bytes);
    }
    parts.push_back(std::move(changes));
  }
  return {{"times", std::move(times)},          {"work", work},
          {"indexes", std::move(indexes)},      {"values", std::move(values)},
          {"parts", std::move(parts)},          {"backward", timeline.backward_seconds * scale},
          {"end", timeline.end_seconds * scale}};
}

/// Empty where it is no value that plans decide on or policies drop.
const char* fate_name(const GraphValue& value, const Action& action) {
  if (!value.returns() && value.packed_bytes == 0) return "";
  constexpr const char* kNames[] = {"kept", "packed", "moved", "recomputed"};  // by Fate
  return kNames[static_cast<size_t>(fate_of(value, action))];
}

class Page {
 public:
  explicit Page(const Run& run)
      : run_(run),
        actions_(run.plan ? run.plan->actions : std::vector<Action>(run.graph.values.size(), Action::kKeep)),
        plain_(make_timeline(run.graph)),
        step_(make_timeline(run.graph, actions_, plan_budget())),
        costs_(plan_costs(run.graph, step_)) {}

  json data() {
    json parts = json::array();
    for (const PartStyle& part : kParts) parts.push_back({{"label", part.label}, {"color", part.color}});
    json data = {{"name", run_.name},
                 {"timed", step_.timed},
                 {"budget", run_.plan     ? run_.plan->budget_bytes
                            : run_.report ? run_.report->budget_bytes
                                          : 0},
                 {"baseline", run_.graph.baseline_bytes},
                 {"parts", std::move(parts)},
                 {"plain", timeline_json(plain_)},
                 {"plain_peak", plain_peak_bytes()},
                 {"step", run_.plan ? timeline_json(step_) : json()},
                 {"operators", operators()},
                 {"values", values()},
                 {"figures", figures()},
                 {"replayed", replayed()}};
    data["decided"] = run_.report ? run_.report->decided_by : run_.plan ? run_.plan->planner : "";
    data["reason"] = run_.report ? run_.report->decision_reason : "";
    data["cost"] = run_.report && run_.report->completed ? json(run_.report->cost_percent()) : json();
    data["completed"] = !run_.report || run_.report->completed;
    data["names"] = names_.list();
    data["layers"] = layers_.list();
    return data;
  }

 private:
  json operators() {
    json name = json::array(), layer = json::array(), seconds = json::array();
    for (size_t o = 0; o < run_.graph.operators.size(); ++o) {
      name.push_back(names_.index(run_.graph.operators[o].name));
      if (!run_.layers.empty()) layer.push_back(layers_.index(run_.layers[o]));
      seconds.push_back(std::llround(run_.graph.operators[o].seconds * 1e9));
    }
    return {{"name", std::move(name)}, {"layer", std::move(layer)}, {"seconds", std::move(seconds)}};
  }

  /// [value, operator that made it, bytes, action, bytes when packed, operators that bring it back, nanoseconds]
  json values() const {
    json rows = json::array();
    for (size_t v = 0; v < run_.graph.values.size(); ++v) {
      const GraphValue& value = run_.graph.values[v];
      const std::string action = fate_name(value, actions_[v]);
      if (action.empty()) continue;
      rows.push_back({v, value.producer, value.bytes, action, action == "packed" ? value.packed_bytes : 0,
                      costs_.of_value[v].replays, std::llround(costs_.of_value[v].seconds * 1e9)});
    }
    return rows;
  }

  /// [what, unit, planned, measured]; null: not known.
  json figures() const {
    const auto& plan = run_.plan;
    const auto& report = run_.report;
    json rows = json::array();
    const auto add = [&](const char* what, const char* unit, const json& planned, const json& measured) {
      if (!planned.is_null() || !measured.is_null()) rows.push_back({what, unit, planned, measured});
    };
    const auto measured = [&](auto StepReport::*field) { return report ? json((*report).*field) : json(); };
    add("peak", "bytes", plan ? json(step_.peak_bytes()) : json(), measured(&StepReport::peak_bytes));
    const bool differs = plain_.peak_bytes() != plain_peak_bytes();
    if (differs) add("peak with all kept", "bytes", plain_.peak_bytes(), json());
    add("peak of plain", "bytes", differs ? json() : json(plain_.peak_bytes()),
        measured(&StepReport::plain_peak_bytes));
    add("alive when the step began", "bytes", run_.graph.baseline_bytes, measured(&StepReport::baseline_bytes));
    const bool timed = plan && step_.timed;
    add("time of the step", "seconds", timed ? json(step_.end_seconds) : json(),
        report ? json(report->step_seconds - report->planning_seconds) : json());
    add("of it recomputing", "seconds", timed ? json(predict(run_.graph, actions_, plan_budget()).seconds) : json(),
        measured(&StepReport::recompute_seconds));
    add("operators that ran again", "count", plan ? json(costs_.all.replays) : json(),
        measured(&StepReport::operators_replayed));
    add("values given up", "count", plan ? json(given_up()) : json(), measured(&StepReport::values_dropped));
    return rows;
  }

  /// As it was measured beside the step, where it was. A recorded step has besides what replays begin with (generators'
  /// states, copies), also where nothing is dropped.
  int64_t plain_peak_bytes() const {
    return run_.report && run_.report->completed ? run_.report->plain_peak_bytes : plain_.peak_bytes();
  }

  int64_t plan_budget() const { return run_.plan ? run_.plan->budget_bytes : 0; }

  /// Each time counted.
  int64_t given_up() const {
    int64_t count = 0;
    for (const GraphEvent& event : run_.graph.events) {
      if (event.kind != GraphEvent::Kind::kIdle) continue;
      const GraphValue& value = run_.graph.values[event.index];
      const bool gone = value.returns() && actions_[event.index].kind != Action::Kind::kKeep;
      count += value.dropped || gone ? 1 : 0;
    }
    return count;
  }

  /// [operator's name, planned times, planned seconds, measured times, measured seconds]
  json replayed() const {
    struct Row {  // NOLINT(bugprone-exception-escape): json's constructor
      PlanCosts::Cost planned;
      json times, seconds;
    };
    std::map<std::string, Row> rows;
    for (size_t o = 0; o < costs_.of_operator.size(); ++o) {
      if (costs_.of_operator[o].replays == 0) continue;
      PlanCosts::Cost& planned = rows[run_.graph.operators[o].name].planned;
      planned.replays += costs_.of_operator[o].replays;
      planned.seconds += costs_.of_operator[o].seconds;
    }
    for (const ReplayedOperator& op : run_.report ? run_.report->replayed : std::vector<ReplayedOperator>()) {
      rows[op.name].times = op.count;
      rows[op.name].seconds = op.seconds;
    }
    json list = json::array();
    for (const auto& [name, row] : rows) {
      list.push_back({name, row.planned.replays, row.planned.seconds, row.times, row.seconds});
    }
    return list;
  }

  const Run& run_;
  const std::vector<Action> actions_;
  const Timeline plain_, step_;
  const PlanCosts costs_;
  Names names_, layers_;
};

/// JSON for a script element, which ends at the first "</script" whatever the text around it means.
std::string for_script(const json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void replace(std::string& page, const std::string& mark, const std::string& text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string to_html(const Run& run) {
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; record the step again");
  std::string page = kPageHtml;
  // The data last: they may hold any text.
  replace(page, "/*style*/", kPageCss);
  replace(page, "/*tables*/", kPageTablesJs);
  replace(page, "/*script*/", kPageJs);
  replace(page, "<!--title-->", support::escape_xml(run.name.empty() ? "Memory of a step" : run.name));
  replace(page, "<!--data-->", for_script(Page(run).data()));
  return page;
}

}  // namespace remat
