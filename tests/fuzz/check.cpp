#include "fuzz/check.h"

#include <cstdlib>
#include <thread>

#include "fuzz/run.h"

namespace remat::fuzz {

namespace {

/// Of plain's peak, that its account may lack for the history of writes.
constexpr int64_t kPartOfHistory = 4;

std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c < '0' || c > '9') result += c;
  }
  return result;
}

std::optional<std::string> compare(const Program& program, const Run& plain, const Run& other, const std::string& name,
                                   Tally& tally) {
  ++tally.runs;
  if (other.report) {
    tally.recorded += other.report->operators_recorded;
    tally.replayed += other.report->operators_replayed;
    tally.dropped += other.report->values_dropped;
    tally.packed += other.report->values_packed;
  }
  // A cycle also holds what its saved tensors are replayed from.
  if (other.leaked > 0 && !plain.has_cycle()) {
    return name + ": leaked " + std::to_string(other.leaked) + " bytes, plain " + std::to_string(plain.leaked);
  }
  if (other.lower_bound || plain.trace.failed_later) return std::nullopt;
  const auto& a = plain.trace.entries;
  const auto& b = other.trace.entries;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
    if (other.trace.refused && i + 1 == b.size()) {
      ++tally.refused;
      ++tally.refusals[without_numbers(other.trace.refusal)];
      if (!program.may_be_refused() && other.trace.refusal.find("::") == std::string::npos)
        return name + ": names no operator: " + other.trace.refusal;
      return std::nullopt;
    }
    const auto say = [&](const auto& list) { return i < list.size() ? list[i].first : std::string("nothing"); };
    if (say(a) == say(b)) return name + ": " + say(a) + " differs";
    return name + ": plain has '" + say(a) + "', remat has '" + say(b) + "'";
  }
  return std::nullopt;
}

std::optional<std::string> compare_peaks(const Run& plain, const Run& other, const Setting& setting) {
  if (!other.report || plain.trace.failed_later) return std::nullopt;
  const StepReport& report = *other.report;
  const auto number = [](int64_t n) { return std::to_string(n); };
  // Errors in a program end some operators of a plain run and of remat's run at different moments.
  // Above the baseline: cycles that plain PyTorch leaks move the baseline from run to run.
  const int64_t plain_peak = plain.peak - plain.baseline;
  // Cycles are plain's alone.
  const bool cycle = plain.leaked > other.leaked;
  // A saved tensor that was written to in place later drags along the history of the write, and autograd adds gradients
  // in place where nothing else holds them: dropped values don't: one tensor or two.
  const bool writes = plain.listing.find("_\n") != std::string::npos;
  const int64_t least = writes || setting.budget ? plain_peak - plain_peak / kPartOfHistory : plain_peak;
  // Storages that change size or place under a saved tensor: plain frees the old one, which a replay may need.
  const bool swaps =
      plain.listing.find(".set_(") != std::string::npos || plain.listing.find(".resize_") != std::string::npos;
  const int64_t said = report.plain_peak_bytes - other.baseline;
  if ((said > plain_peak || said < least) && !cycle && !swaps && !other.trace.refused) {
    return setting.name + ": plain_peak_bytes is " + number(said) + " above the baseline, plain's measured peak " +
           number(plain_peak);
  }
  if (report.peak_bytes != other.peak) {
    return setting.name + ": peak_bytes is " + number(report.peak_bytes) + ", measured " + number(other.peak);
  }
  if (setting.budget && other.peak - other.baseline > *setting.budget) {
    return setting.name + ": peak " + number(other.peak - other.baseline) + " is above the budget " +
           number(*setting.budget);
  }
  return std::nullopt;
}

/// A plain run, and the parameters that the other runs shall have: made before the step, or inside it.
struct Reference {
  Run plain;
  std::vector<ParameterSpec> parameters;
};

Reference reference(const Program& program, Tally& tally) {
  const Setting plain{.name = "plain", .plain = true};
  Reference result;
  result.plain = run(program, {}, plain);
  if (program.seed % 2 == 0) {
    result.parameters = result.plain.parameters;
    result.plain = run(program, result.parameters, plain);
  }
  ++tally.programs;
  for (const auto& [what, value] : result.plain.trace.entries) {
    if (what.find(" threw") == std::string::npos) continue;
    ++tally.threw;
    break;
  }
  return result;
}

}  // namespace

std::optional<std::string> check_exact(const Program& program, Tally& tally) {
  const auto [plain, parameters] = reference(program, tally);
  const std::vector<ScopeRange> everything = {{0, program.length, Policy::drop_all()}};
  Random random(Random::mix(program.seed, 4));
  const Setting settings[] = {{.name = "drop all, no session", .scopes = everything},
                              {.name = "session without pressure", .session = true},
                              {.name = "drop all, verified", .session = true, .verify = true, .scopes = everything},
                              {.name = "random scopes",
                               .session = random.chance(50),
                               .verify = true,
                               .scopes = random_scopes(program, random)}};
  std::optional<std::string> accounting;  // wrong bits are the worse problem, and are said first
  for (const auto& setting : settings) {
    const Run other = run(program, parameters, setting);
    if (auto problem = compare(program, plain, other, setting.name, tally)) return problem;
    if (!accounting) accounting = compare_peaks(plain, other, setting);
    if (other.lower_bound) return setting.name + ": a budget error without a budget";
  }
  return accounting;
}

std::optional<std::string> check_plans(const Program& program, Tally& tally) {
  const auto [plain, parameters] = reference(program, tally);
  const int64_t activations = plain.peak - plain.baseline;
  std::vector<Setting> settings = {
      {.name = "drop-all, planned", .session = true, .verify = true, .planner = "drop-all", .steps = 2}};
  for (const int64_t percent : {80, 60, 40}) {
    settings.push_back({.name = std::to_string(percent) + " %, planned",
                        .session = true,
                        .budget = std::max<int64_t>(1, activations * percent / 100),
                        .planner = "auto",
                        .steps = 2});
  }
  std::optional<std::string> accounting;
  for (const auto& setting : settings) {
    const Run other = run(program, parameters, setting);
    if (auto problem = compare(program, plain, other, setting.name, tally)) return problem;
    if (!accounting) accounting = compare_peaks(plain, other, setting);
    if (setting.budget && other.peak - other.baseline > *setting.budget) {
      return setting.name + ": the peak, " + std::to_string(other.peak - other.baseline) + ", is above its budget " +
             std::to_string(*setting.budget);
    }
    if (other.lower_bound) {
      ++tally.budgets_refused;
    } else if (other.report && other.report->planned_peak_bytes > 0) {
      ++tally.planned;
      const int64_t measured = other.report->peak_bytes;
      const int64_t planned = other.report->planned_peak_bytes;
      tally.as_planned += measured == planned ? 1 : 0;
      tally.above_plan += measured > planned ? 1 : 0;
    }
  }
  return accounting;
}

std::optional<std::string> check_changing_steps(const Program& program, Tally& tally) {
  Random random(Random::mix(program.seed, 5));
  std::vector<Program> steps(2, program);
  for (int i = 0; i < 6; ++i) {
    Program& other = steps.emplace_back(program);
    if (random.chance(60)) other.scale = random.between(program.scale / 2, program.scale + 6);
    if (random.chance(60)) other.left_out.insert(static_cast<int>(random.between(0, program.length - 1)));
  }
  Setting setting{.name = "", .session = true, .verify = program.seed % 3 == 0, .planner = "auto"};
  std::optional<Session> session;
  for (size_t step = 0; step < steps.size(); ++step) {
    const auto [plain, parameters] = reference(steps[step], tally);
    if (step == 0) setting.budget = std::max<int64_t>(1, (plain.peak - plain.baseline) * random.between(6, 30) / 10);
    setting.name = "step " + std::to_string(step) + ", of other sizes or operators";
    announce(steps[step], setting.name.c_str());
    Run other = run_step(steps[step], parameters, setting, session);
    if (other.leaked != 0) other = run_step(steps[step], parameters, setting, session);
    if (auto problem = compare(steps[step], plain, other, setting.name, tally)) return problem;
    if (other.lower_bound) {
      ++tally.budgets_refused;
      continue;
    }
    if (other.report && other.report->decided_by == "auto") ++tally.planned;
    if (other.report && other.report->peak_bytes > other.report->budget_bytes) {
      return setting.name + ": the peak, " + std::to_string(other.report->peak_bytes) + ", is above the budget, " +
             std::to_string(other.report->budget_bytes);
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_budgets(const Program& program, Tally& tally) {
  const auto [plain, parameters] = reference(program, tally);
  const int64_t activations = plain.peak - plain.baseline;
  if (activations < 4096) return std::nullopt;
  int64_t smallest_held = activations + 1;
  int64_t largest_refused = 0;
  int64_t lower_bound = 0;
  std::optional<std::string> accounting;  // wrong bits and broken budgets are said first
  const auto attempt = [&](int64_t budget, const std::string& name) -> std::optional<std::string> {
    const Setting setting{.name = name, .session = true, .verify = program.seed % 3 == 0, .budget = budget};
    const Run other = run(program, parameters, setting);
    if (auto problem = compare(program, plain, other, name, tally)) return problem;
    if (!accounting) accounting = compare_peaks(plain, other, setting);
    if (other.peak - other.baseline > budget) {
      return name + ": the peak, " + std::to_string(other.peak - other.baseline) + ", is above its budget " +
             std::to_string(budget);
    }
    if (other.lower_bound) {
      ++tally.budgets_refused;
      largest_refused = std::max(largest_refused, budget);
      lower_bound = std::max(lower_bound, *other.lower_bound);
      if (budget > smallest_held) ++tally.not_monotone;
    } else {
      ++tally.budgets_held;
      if (largest_refused > budget) ++tally.not_monotone;
      smallest_held = std::min(smallest_held, budget);
      const double ratio = static_cast<double>(other.report->operators_replayed) /
                           static_cast<double>(std::max<int64_t>(1, other.report->operators_recorded));
      if (ratio > tally.worst_replay_ratio) {
        tally.worst_replay_ratio = ratio;
        tally.worst_replay_seed = program.seed;
      }
    }
    if (smallest_held < lower_bound && !accounting) {
      accounting = name + ": " + std::to_string(smallest_held) + " bytes held, but the lower bound was said to be " +
                   std::to_string(lower_bound);
    }
    return std::nullopt;
  };
  for (const int64_t percent : {90, 70, 50, 40, 30}) {
    const int64_t budget = activations * percent / 100;
    if (auto problem = attempt(budget, std::to_string(percent) + " % of plain's activation peak")) return problem;
    if (budget < lower_bound) break;
  }
  for (int i = 0; i < 4 && largest_refused + 64 < smallest_held; ++i) {
    const int64_t budget = (largest_refused + smallest_held) / 2;
    if (auto problem = attempt(budget, "near the smallest budget")) return problem;
  }
  return accounting;
}

std::optional<std::string> check_kind(const Program& program, Tally& tally) {
  const auto [plain, parameters] = reference(program, tally);
  const std::vector<ScopeRange> everything = {{0, program.length, Policy::drop_all()}};
  const int64_t room = std::max<int64_t>(1, (plain.peak - plain.baseline) * 8 / 10);
  Random random(Random::mix(program.seed, 4));
  std::vector<Setting> settings = {
      {.name = "drop all, verified", .session = true, .verify = true, .scopes = everything},
      {.name = "random scopes", .session = true, .verify = true, .scopes = random_scopes(program, random)},
      {.name = "drop-all, planned", .session = true, .verify = true, .planner = "drop-all", .steps = 2}};
  if (program.kind != Kind::kHiddenWrites) {  // which nothing but verify promises to find
    settings.push_back({.name = "drop all, no session", .scopes = everything});
    settings.push_back({.name = "80 % of the memory", .session = true, .budget = room});
    settings.push_back({.name = "80 %, planned", .session = true, .budget = room, .planner = "auto", .steps = 2});
  }
  for (const auto& setting : settings) {
    const Run other = run(program, parameters, setting);
    if (auto problem = compare(program, plain, other, setting.name, tally)) return problem;
    if (setting.budget && other.peak - other.baseline > *setting.budget) {
      return setting.name + ": the peak, " + std::to_string(other.peak - other.baseline) + ", is above its budget " +
             std::to_string(*setting.budget);
    }
    if (setting.budget) ++(other.lower_bound ? tally.budgets_refused : tally.budgets_held);
  }
  return std::nullopt;
}

std::optional<std::string> check_threads(const Program& program, Tally& tally) {
  constexpr uint64_t kThreads = 3;
  announce(program, "on several threads");
  std::vector<Program> programs(kThreads, program);
  std::vector<Reference> references;
  for (uint64_t i = 0; i < kThreads; ++i) {
    programs[i].seed = Random::mix(program.seed, 50 + i);
    references.push_back(reference(programs[i], tally));
  }
  const std::vector<ScopeRange> everything = {{0, program.length, Policy::drop_all()}};
  const Setting settings[] = {
      {.name = "threads, drop all", .session = true, .verify = true, .scopes = everything},
      {.name = "threads, drop-all planned", .session = true, .verify = true, .planner = "drop-all", .steps = 3}};
  for (const auto& setting : settings) {
    const int64_t before = memory::current(program.device);
    std::vector<std::optional<Run>> runs(kThreads);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i, warnings = c10::WarningUtils::get_warning_handler()] {
        const c10::WarningUtils::WarningHandlerGuard same_warnings(warnings);  // a thread has its own
        std::optional<Session> session;
        for (int step = 0; step < setting.steps; ++step) {
          runs[i] = run_step(programs[i], references[i].parameters, setting, session);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    bool cycle = false;
    for (uint64_t i = 0; i < kThreads; ++i) {
      cycle = cycle || references[i].plain.has_cycle();
      runs[i]->leaked = 0;  // what the other threads have allocated meanwhile
      if (auto problem = compare(programs[i], references[i].plain, *runs[i], setting.name, tally)) {
        return *problem + "\nin:\n" + references[i].plain.listing;  // which is not that of `program`
      }
    }
    if (const int64_t leaked = memory::current(program.device) - before; leaked > 0 && !cycle) {
      return setting.name + ": leaked " + std::to_string(leaked) + " bytes";
    }
  }
  return std::nullopt;
}

Program shrink(Program program, const Check& check, const std::string& problem) {
  Tally ignored;
  const auto kind = [](const std::string& text) { return without_numbers(text).substr(0, 40); };
  for (int i = program.length - 1; i >= 0; --i) {
    program.left_out.insert(i);
    const auto other = check(program, ignored);
    if (!other || kind(*other) != kind(problem)) program.left_out.erase(i);
  }
  return program;
}

std::string listing_of(const Program& program) {
  return run(program, {}, Setting{.name = "listing", .plain = true}).listing;
}

}  // namespace remat::fuzz
