// The step in the format of Chrome's trace viewer, which Perfetto reads, too:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <string>

#include <nlohmann/json.hpp>

#include <remat/error.h>
#include <remat/run.h>
#include <remat/timeline.h>

#include "report/parts.h"

namespace remat {
namespace {

using nlohmann::json;
using Work = TimelineMoment::Work;

constexpr int kSteps = 1, kReplays = 2;  // tracks

class Writer {
 public:
  explicit Writer(const Run& run) : run_(run) {}

  void add_process(int process, const std::string& name) {
    add_name("process_name", process, 0, name);
    add_name("thread_name", process, kSteps, "operators");
    add_name("thread_name", process, kReplays, "recomputed");
    json order = {{"name", "process_sort_index"}, {"ph", "M"}, {"pid", process}, {"tid", 0}};
    order["args"]["sort_index"] = process;
    events_.push_back(std::move(order));
  }

  void add(int process, const Timeline& timeline) {
    MemoryParts before;
    for (size_t m = 0; m < timeline.moments.size(); ++m) {
      const TimelineMoment& moment = timeline.moments[m];
      const bool last = m + 1 == timeline.moments.size();
      const double end = last ? timeline.end_seconds : timeline.moments[m + 1].begin_seconds;
      add_slice(process, moment, end);
      if (m == 0 || !(moment.parts == before)) add_counter(process, moment);
      before = moment.parts;
    }
  }

  std::string text() const {
    json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", events_}};
    return trace.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }

 private:
  void add_name(const char* what, int process, int track, const std::string& name) {
    json event = {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}};
    event["args"]["name"] = name;
    events_.push_back(std::move(event));
  }

  /// Moments without anything that runs have none. Times are in microseconds.
  void add_slice(int process, const TimelineMoment& moment, double end) {
    const bool replay = moment.work == Work::kRecompute, unpack = moment.work == Work::kUnpack;
    if (moment.index < 0 && !unpack) return;
    std::string name = unpack ? "unpack" : run_.graph.operators[moment.index].name;
    if (moment.work == Work::kBackward) name += " backward";
    json args = json::object();
    if (moment.index >= 0) args["operator"] = moment.index;
    if (moment.index >= 0 && !run_.layers.empty()) args["layer"] = run_.layers[moment.index];
    if (moment.value >= 0) args["for value"] = moment.value;
    constexpr const char* kCategories[] = {"forward", "backward", "recompute", "unpack"};  // by Work
    events_.push_back({{"name", std::move(name)},
                       {"cat", kCategories[static_cast<size_t>(moment.work)]},
                       {"ph", "X"},
                       {"pid", process},
                       {"tid", replay || unpack ? kReplays : kSteps},
                       {"ts", moment.begin_seconds * 1e6},
                       {"dur", (end - moment.begin_seconds) * 1e6},
                       {"args", std::move(args)}});
  }

  void add_counter(int process, const TimelineMoment& moment) {
    json bytes = json::object();
    for (const PartStyle& part : kParts) bytes[part.name] = moment.parts.*part.bytes;
    events_.push_back({{"name", "memory"},
                       {"ph", "C"},
                       {"pid", process},
                       {"ts", moment.begin_seconds * 1e6},
                       {"args", std::move(bytes)}});
    events_.push_back({{"name", "memory, all"},
                       {"ph", "C"},
                       {"pid", process},
                       {"ts", moment.begin_seconds * 1e6},
                       {"args", {{"bytes", moment.parts.total()}}}});
  }

  const Run& run_;
  json events_ = json::array();
};

}  // namespace

std::string to_trace(const Run& run) {
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; record the step again");
  Writer writer(run);
  if (run.plan) {
    writer.add_process(1, "under the plan");
    writer.add(1, make_timeline(run.graph, run.plan->actions, run.plan->budget_bytes));
  }
  writer.add_process(2, "plain");
  writer.add(2, make_timeline(run.graph));
  return writer.text();
}

}  // namespace remat
