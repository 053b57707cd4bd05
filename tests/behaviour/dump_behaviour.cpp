// Writes down what remat does in the steps of random programs: reports, graphs, plans, refusals. Two builds that
// write the same behave the same, to the byte: scripts/same-behaviour compares them, for changes of the code that are
// meant to change nothing.
//
//   dump_behaviour [--programs 100] [--first 0] [--full]
//
// Each line ends with a fingerprint of the graph's and the plan's JSON; --full writes those out. Clocks give times that
// depend on nothing but how often they were asked, so that neither do prices and plans. On the simulated device
// autograd's own threads free memory beside the step's: there nothing is planned, and no graph is written.
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>

#include <ATen/Parallel.h>

#include "fuzz/check.h"
#include "fuzz/run.h"
#include "support/silence.h"

namespace {

/// Nanoseconds of a thread's clock: between 1 and 64 microseconds for each time that it is asked.
int64_t next_time() {
  thread_local int64_t now = 0;
  thread_local uint64_t asked = 0;
  now += 1000 + static_cast<int64_t>(remat::fuzz::Random::mix(++asked) % 63000);
  return now;
}

}  // namespace

/// In place of the C library's, for std::chrono::steady_clock. Deadlines are of other clocks, which stay.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_MONOTONIC) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t now = next_time();
  *time = {.tv_sec = now / kSecond, .tv_nsec = now % kSecond};
  return 0;
}

namespace remat::fuzz {
namespace {

struct Options {
  int64_t programs = 100, first = 0;
  bool full = false;
};

[[noreturn]] void usage() {
  std::cerr << "dump_behaviour [--programs N] [--first SEED] [--full]\n";
  std::exit(2);
}

Options options_of(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    const auto value = [&] {
      if (++i == count) usage();
      return std::string(arguments[i]);
    };
    if (name == "--programs") {
      options.programs = std::atoll(value().c_str());
    } else if (name == "--first") {
      options.first = std::atoll(value().c_str());
    } else if (name == "--full") {
      options.full = true;
    } else {
      usage();
    }
  }
  return options;
}

std::string written(const std::string& json, bool full) {
  return full ? json : std::to_string(std::hash<std::string>{}(json));
}

/// What is of the machine, not of remat.
StepReport without_surroundings(StepReport report) {
  report.resident_peak_bytes = 0;
  return report;
}

/// One line: what happened in the step that has just run.
void write_step(const Options& options, const Program& program, const std::string& setting, int step, const Run& run,
                const std::optional<Session>& session) {
  std::cout << program.seed << ' ' << setting << ' ' << step << ": ";
  uint64_t bits = 0;
  for (const auto& [what, value] : run.trace.entries) bits = Random::mix(bits, value);
  std::cout << "bits " << bits << " leaked " << run.leaked;
  if (run.lower_bound) std::cout << " none below " << *run.lower_bound;
  if (run.trace.refused) std::cout << " refused " << run.trace.refusal;
  if (run.report) std::cout << ' ' << to_json(without_surroundings(*run.report));
  if (session) {
    try {
      const Graph graph = session->graph();
      std::cout << " graph " << written(to_json(graph), options.full);
      Plan plan = session->plan();
      plan.graph_fingerprint = 0;
      std::cout << " plan " << written(to_json(plan), options.full);
    } catch (const Error&) {  // there is none
    }
  }
  std::cout << '\n';
}

void write_program(const Options& options, const Program& program) {
  const Run plain = run(program, {}, {.name = "plain", .plain = true});
  const int64_t activations = plain.peak - plain.baseline;
  const std::vector<ScopeRange> everything = {{0, program.length, Policy::drop_all()}};
  std::vector<Setting> settings = {{.name = "drop_all", .session = true, .verify = true, .scopes = everything},
                                   {.name = "unlimited", .session = true}};
  for (const int percent : {90, 75, 60}) {
    for (const char* planner : {"online", "auto"}) {
      settings.push_back({.name = planner + std::to_string(percent),
                          .session = true,
                          .budget = std::max<int64_t>(1, activations * percent / 100),
                          .planner = planner,
                          .steps = 3});
    }
  }
  for (const Setting& setting : settings) {
    std::optional<Session> session;
    Program next = program;
    for (int step = 0; step < setting.steps; ++step) {
      const Run other = run_step(next, plain.parameters, setting, session);
      write_step(options, next, setting.name, step, other, session);
    }
    next.left_out.insert(program.length / 2);  // a step of other operators
    write_step(options, next, setting.name, setting.steps, run_step(next, plain.parameters, setting, session), session);
  }
}

int dump(const Options& options) {
  test::Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  at::set_num_threads(1);
  for (int64_t i = 0; i < options.programs; ++i) {
    Program program;
    program.seed = static_cast<uint64_t>(options.first + i);
    program.length = 40;
    program.scale = 24;
    write_program(options, program);
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace
}  // namespace remat::fuzz

int main(int count, char** arguments) { return remat::fuzz::dump(remat::fuzz::options_of(count, arguments)); }
