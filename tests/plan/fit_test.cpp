#include <remat/fit.h>

#include <array>
#include <functional>
#include <limits>
#include <map>

#include <gtest/gtest.h>
#include <remat/error.h>
#include <remat/planner.h>

#include "brute_force.h"
#include "step_builder.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

constexpr int64_t kBase = 10'000;

/// Layers whose bytes and seconds grow with the size, and `square` with its square; a scratch of backward with a kink.
Graph sized_step(int64_t size, int layers = 12, int64_t square = 0) {
  StepBuilder step;
  int32_t last = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const auto seconds = static_cast<double>(size) * 1e-3;
    last = step.saved({last}, 400 * size + square * size * size, seconds);
    last = step.saved({last}, 100 * size, 0.1 * seconds);
  }
  Graph graph = step.graph();
  graph.baseline_bytes = kBase + 8 * size;
  graph.events.back().rise = std::max<int64_t>(2000, 90 * size);
  return graph;
}

/// Runs steps of a family of graphs as sessions would: by the planners' predictions.
class Family {
 public:
  using Make = std::function<Graph(int64_t)>;
  explicit Family(Make make) : make_(std::move(make)) {}

  FitTrial run(int64_t size, FitMode mode, int64_t budget) const {
    const Graph graph = make_(size);
    if (mode == FitMode::kPlain) return {true, plain_peak(graph), graph.step_seconds, {}};
    if (smallest_online_budget(graph) > budget) return {false, smallest_online_budget(graph), 0, {}};
    const Plan plan = make_plan(graph, budget);
    return {true, plan.predicted_peak_bytes, graph.step_seconds + plan.predicted_seconds, graph};
  }
  Fit fit(FitOptions options) const {
    const int64_t budget = options.budget_bytes;
    return remat::fit(options, [&](int64_t size, FitMode mode) { return run(size, mode, budget); });
  }
  int64_t largest(const FitOptions& options, bool plain) const {
    int64_t largest = 0;
    for (const int64_t size : options.sizes) {
      const Graph graph = make_(size);
      if ((plain ? plain_peak(graph) : smallest_online_budget(graph)) <= options.budget_bytes) largest = size;
    }
    return largest;
  }

 private:
  Make make_;
};

int64_t size_of(const std::optional<FitPoint>& point) { return point ? point->size : 0; }

/// The place in a list of sizes; -1 for none.
int64_t place(const std::vector<int64_t>& sizes, int64_t size) {
  return std::ranges::upper_bound(sizes, size) - sizes.begin() - 1;
}

void expect_found(const Family& family, FitOptions options) {
  const Fit found = family.fit(options);
  EXPECT_EQ(size_of(found.plain), family.largest(options, true)) << options.budget_bytes;
  const int64_t truth = place(options.sizes, family.largest(options, false));
  EXPECT_LE(place(options.sizes, found.largest.size), truth) << options.budget_bytes;
  EXPECT_GE(place(options.sizes, found.largest.size), truth - 1) << options.budget_bytes;
  for (const auto& point : {found.plain, std::optional(found.largest), found.worthwhile}) {
    if (!point) continue;
    EXPECT_TRUE(point->measured);
    EXPECT_LE(point->peak_bytes, options.budget_bytes);
  }
}

TEST(Fit, FindsTheLargestBatch) {
  const Family family([](int64_t size) { return sized_step(size); });
  for (const int64_t budget : {40'000, 100'000, 500'000}) {
    expect_found(family, {.sizes = fit_sizes(1, 4096), .budget_bytes = budget});
  }
}

TEST(Fit, FindsTheLargestLengthWhoseBytesGrowWithItsSquare) {
  const Family family([](int64_t size) { return sized_step(size, 6, 7); });
  for (const int64_t budget : {100'000, 3'000'000}) {
    expect_found(family, {.sizes = fit_sizes(8, 4096, 8), .budget_bytes = budget, .what = "length"});
  }
}

TEST(Fit, FindsTheLargestDepthWhereOperatorsAreOthersInEachSize) {
  const Family family([](int64_t size) { return sized_step(16, static_cast<int>(size)); });
  const FitOptions options{.sizes = fit_sizes(1, 100), .budget_bytes = 100'000, .what = "depth"};
  expect_found(family, options);
  EXPECT_FALSE(family.fit(options).same_operators);
}

TEST(Fit, PredictionIsNeverLargerAndRunsSmallStepsAlone) {
  const Family family([](int64_t size) { return sized_step(size); });
  const FitOptions options{.sizes = fit_sizes(1, 4096), .budget_bytes = 400'000, .predict_only = true};
  const Fit found = family.fit(options);
  EXPECT_EQ(size_of(found.plain), family.largest(options, true));
  EXPECT_LE(found.largest.size, family.largest(options, false));
  EXPECT_FALSE(found.largest.measured);
  for (const FitRun& run : found.runs) EXPECT_LE(4 * run.size, found.plain->size) << run.size;
}

TEST(Fit, SaysWhatIsWorthItsTime) {
  const Family family([](int64_t size) { return sized_step(size); });
  const FitOptions options{.sizes = fit_sizes(1, 4096), .budget_bytes = 500'000, .most_loss_percent = 10};
  const Fit found = family.fit(options);
  ASSERT_TRUE(found.worthwhile);
  EXPECT_GT(found.worthwhile->size, found.plain->size);
  EXPECT_LT(found.worthwhile->size, found.largest.size);
  EXPECT_LE(found.loss_percent(*found.worthwhile), 10);
  const auto next = options.sizes[static_cast<size_t>(place(options.sizes, found.worthwhile->size) + 2)];
  const FitTrial larger = family.run(next, FitMode::kRemat, options.budget_bytes);
  EXPECT_GT(found.loss_percent({next, 0, larger.seconds, true}), 10);
  EXPECT_NE(to_text(found).find("it is worth it"), std::string::npos) << to_text(found);
}

TEST(Fit, LowersWhatDoesNotHold) {
  const Family family([](int64_t size) { return sized_step(size); });
  const FitOptions options{.sizes = fit_sizes(1, 4096), .budget_bytes = 400'000};
  const int64_t wall = family.largest(options, false) * 3 / 4;
  const Fit found = fit(options, [&](int64_t size, FitMode mode) {
    return size > wall ? FitTrial{} : family.run(size, mode, options.budget_bytes);
  });
  EXPECT_LE(found.largest.size, wall);
  EXPECT_GE(found.largest.size, wall / 2);
  EXPECT_GT(found.predicted_largest, wall);
}

TEST(Fit, SplitsAnEffectiveSizeIntoTheFastestSteps) {
  // Half of a step's time does not grow: the larger, the faster, until recomputing costs more.
  const Family family([](int64_t size) {
    Graph graph = sized_step(size);
    for (auto& op : graph.operators) op.seconds += 4e-3;
    graph.step_seconds += 3 * 4e-3 * static_cast<double>(graph.operators.size());
    return graph;
  });
  const FitOptions options{.sizes = fit_sizes(1, 4096), .budget_bytes = 200'000, .effective = 192};
  const Fit found = family.fit(options);
  ASSERT_TRUE(found.split);
  EXPECT_EQ(found.split->step.size * found.split->steps, 192);
  EXPECT_TRUE(found.split->step.measured);
  EXPECT_EQ(found.split->plan.has_value(), !found.split->plain);
  for (const int64_t other : {4, 8, 16, 24}) {
    const FitTrial trial = family.run(other, FitMode::kPlain, options.budget_bytes);
    if (trial.peak_bytes > options.budget_bytes) continue;
    EXPECT_LE(found.split->seconds(), 1.01 * trial.seconds * static_cast<double>(192 / other)) << other;
  }
}

TEST(Fit, NothingFits) {
  const Family family([](int64_t size) { return sized_step(size); });
  try {
    family.fit({.sizes = fit_sizes(1, 100), .budget_bytes = kBase});
    FAIL() << "nothing was refused";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.budget_bytes(), kBase);
    EXPECT_EQ(error.needed_bytes(), smallest_online_budget(sized_step(1)));
    EXPECT_NE(std::string(error.what()).find("[fit] no batch fits: a step of 1 needs about "), std::string::npos);
  }
}

TEST(Fit, EverySizeFits) {
  const Family family([](int64_t size) { return sized_step(size); });
  const Fit found = family.fit({.sizes = {1, 2, 3}, .budget_bytes = 1 << 30});
  EXPECT_EQ(size_of(found.plain), 3);
  EXPECT_EQ(found.largest.size, 3);
}

TEST(Fit, RefusesOptionsThatMakeNoSense) {
  const FitSteps none = [](int64_t, FitMode) { return FitTrial{}; };
  EXPECT_THROW(fit({.sizes = {}, .budget_bytes = 1}, none), Error);
  EXPECT_THROW(fit({.sizes = {0, 1}, .budget_bytes = 1}, none), Error);
  EXPECT_THROW(fit({.sizes = {2, 2}, .budget_bytes = 1}, none), Error);
  EXPECT_THROW(fit({.sizes = {1}, .budget_bytes = 0}, none), Error);
  EXPECT_THROW(fit({.sizes = {1}, .budget_bytes = 1, .most_loss_percent = 101}, none), Error);
  EXPECT_THROW(fit({.sizes = {1}, .budget_bytes = 1, .effective = -1}, none), Error);
  const FitSteps no_graph = [](int64_t, FitMode) { return FitTrial{.fits = true, .peak_bytes = 1}; };
  EXPECT_ERROR(fit({.sizes = {8, 9}, .budget_bytes = 5}, no_graph),
               "[fit] the recorded step of batch 8 fitted and gave");
}

TEST(Fit, SizesAreAnEighthApart) {
  EXPECT_EQ(fit_sizes(1, 4), (std::vector<int64_t>{1, 2, 3, 4}));
  const auto sizes = fit_sizes(1, 1000);
  EXPECT_EQ(sizes.back(), 960);
  for (size_t i = 1; i < sizes.size(); ++i) EXPECT_LE(sizes[i] - sizes[i - 1], std::max<int64_t>(1, sizes[i] / 8));
  EXPECT_EQ(fit_sizes(20, 100, 32), (std::vector<int64_t>{32, 64, 96}));
}

TEST(Fit, SizesThatCannotBeAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kEnd = int64_t{1} << 62;
  const std::vector<std::array<int64_t, 3>> refused = {{1, 10, 0}, {1, 10, -1},   {-3, 3, 1},     {0, 5, 1},
                                                       {5, 4, 1},  {1, kMost, 1}, {kEnd, kEnd, 1}};
  for (const auto& [least, most, step] : refused) {
    EXPECT_ERROR(fit_sizes(least, most, step), "give 1 <= least <= most and step >= 1");
  }
  EXPECT_TRUE(fit_sizes(1, 10, kMost).empty());
  EXPECT_GT(fit_sizes(1, kEnd - 1).back(), kEnd / 8 * 7);
}

/// Times that are made up: of a step of `size`, undisturbed, and how many times as long each run of it takes.
struct Times {
  std::function<double(int64_t size, FitMode mode)> step;
  std::function<double(int64_t size, FitMode mode, int run)> disturbed = [](int64_t, FitMode, int) { return 1.0; };
  int steps = 4;  ///< timed in a run
};

Fit fit_timed(const Times& times, int64_t effective = 0) {
  const Family family([](int64_t size) { return sized_step(size); });
  const FitOptions options{.sizes = fit_sizes(1, 4096), .budget_bytes = 400'000, .effective = effective};
  std::map<std::pair<int64_t, FitMode>, int> runs;
  static std::map<std::pair<int64_t, FitMode>, FitTrial> known;  // planning takes longest
  return fit(options, [&](int64_t size, FitMode mode) {
    if (!known.contains({size, mode})) known[{size, mode}] = family.run(size, mode, options.budget_bytes);
    FitTrial trial = known.at({size, mode});
    const double more = times.disturbed(size, mode, runs[{size, mode}]++);
    if (trial.fits) trial.step_seconds.assign(static_cast<size_t>(times.steps), more * times.step(size, mode));
    return trial;
  });
}

/// Under remat a step of a size takes so many times as long as plain.
auto as_long(double times) {
  return [times](int64_t size, FitMode mode) {
    return 1e-5 * static_cast<double>(size) * (mode == FitMode::kRemat ? times : 1);
  };
}

TEST(FitVerdicts, ClearlyBetter) {
  const Fit found = fit_timed({.step = as_long(1.05)});
  EXPECT_EQ(found.verdict, FitVerdict::kWorthIt);
  EXPECT_EQ(found.worthwhile->size, found.largest.size);
  EXPECT_NEAR(found.largest.most_loss_percent, 4.76, 0.01);
  EXPECT_TRUE(holds(to_text(found),
                    ", at 4.8 % less a second.\n"
                    "It is worth it: at most 15 % less is handled in a second than without remat.\n"))
      << to_text(found);
}

TEST(FitVerdicts, MoreASecondReadsSo) {
  const Fit found = fit_timed({.step = as_long(0.18)});
  EXPECT_EQ(found.verdict, FitVerdict::kWorthIt);
  EXPECT_TRUE(holds(to_text(found),
                    ", at 5.6 times as much a second.\n"
                    "It is worth it: no less is handled in a second than without remat.\n"))
      << to_text(found);
  EXPECT_FALSE(holds(to_text(found), "15 %"));
}

TEST(FitVerdicts, ClearlyWorse) {
  const Fit found = fit_timed({.step = as_long(2)});
  EXPECT_EQ(found.verdict, FitVerdict::kNotWorthIt);
  EXPECT_EQ(found.worthwhile->size, found.plain->size);
  EXPECT_NEAR(found.largest.least_loss_percent, 50, 0.01);
  EXPECT_TRUE(holds(to_text(found), "It is not worth its time")) << to_text(found);
  // The next larger size was tried before that was said.
  const auto sizes = fit_sizes(1, 4096);
  const int64_t next = *std::ranges::upper_bound(sizes, found.plain->size);
  EXPECT_TRUE(std::ranges::any_of(found.runs, [&](const FitRun& run) {
    return run.size == next && run.mode == FitMode::kRemat && run.fits;
  })) << next;
}

TEST(FitVerdicts, TooNoisy) {
  const std::array<double, 5> disturbed = {1, 20, 4, 1.3, 9};
  for (const double times : {0.5, 1.0, 1.3, 3.0}) {
    for (size_t shift = 0; shift < disturbed.size(); ++shift) {
      const Fit found = fit_timed({.step = as_long(times), .disturbed = [&](int64_t size, FitMode mode, int run) {
                                     const auto place =
                                         static_cast<size_t>(size + run) + (mode == FitMode::kPlain ? shift : 0);
                                     return disturbed[place % disturbed.size()];
                                   }});
      EXPECT_EQ(found.verdict, FitVerdict::kCannotTell) << times << ' ' << to_text(found);
      EXPECT_LT(found.largest.least_loss_percent, found.largest.most_loss_percent);
      EXPECT_TRUE(holds(to_text(found), "imes vary too much to tell")) << to_text(found);
      EXPECT_TRUE(holds(to_text(found), "Without remat a step of ")) << to_text(found);
    }
  }
}

TEST(FitVerdicts, OneOutlierChangesNothing) {
  for (const double times : {1.05, 2.0}) {
    const Fit steady = fit_timed({.step = as_long(times)}, 192);
    for (const FitMode mode : {FitMode::kPlain, FitMode::kRemat}) {
      for (const int disturbed : {0, 2}) {
        const Fit found = fit_timed(
            {.step = as_long(times),
             .disturbed = [&](int64_t, FitMode each, int run) { return each == mode && run == disturbed ? 100 : 1; }},
            192);
        EXPECT_EQ(found.verdict, steady.verdict) << times << ' ' << disturbed;
        EXPECT_NEAR(found.loss_percent(found.largest), steady.loss_percent(steady.largest), 1e-6);
        EXPECT_EQ(found.worthwhile->size, steady.worthwhile->size);
        ASSERT_TRUE(found.split);
        EXPECT_NEAR(found.split->seconds(), steady.split->seconds(), 0.01 * steady.split->seconds());
      }
    }
  }
}

TEST(FitVerdicts, OfLongStepsFewAreRun) {
  const auto runs_of = [](const Fit& fit, FitMode mode) {
    return std::ranges::count_if(fit.runs, [&](const FitRun& run) {
      return run.mode == mode && run.size == (mode == FitMode::kPlain ? fit.plain->size : fit.largest.size);
    });
  };
  const auto seconds = [](int64_t size, FitMode) { return 0.1 * static_cast<double>(size); };
  const Fit found = fit_timed({.step = seconds, .steps = 1});
  EXPECT_EQ(found.verdict, FitVerdict::kWorthIt);
  EXPECT_EQ(runs_of(found, FitMode::kRemat), 2);
  EXPECT_EQ(runs_of(found, FitMode::kPlain), 2);
}

TEST(FitVerdicts, WithoutTimesThereIsAnAnswer) {
  const Fit found = fit_timed({.step = [](int64_t, FitMode) { return 0.0; }}, 192);
  EXPECT_GT(found.largest.size, found.plain->size);
  EXPECT_FALSE(found.split);
}

// Whatever is measured of it, no step of eight takes longer than one of thirteen.
TEST(FitVerdicts, ASplitThatContradictsTheTableIsNotCalledTheFastest) {
  const auto fixed = [](int64_t size, FitMode mode) {
    return 1e-3 + 1e-5 * static_cast<double>(size) * (mode == FitMode::kRemat ? 9 : 1);
  };
  const Fit steady = fit_timed({.step = fixed}, 160);
  ASSERT_TRUE(steady.split && steady.split->plain);
  EXPECT_LT(steady.split->step.size, steady.plain->size);
  EXPECT_TRUE(steady.split->clear);
  EXPECT_TRUE(holds(to_text(steady), " is fastest as ")) << to_text(steady);
  const Fit found =
      fit_timed({.step = fixed,
                 .disturbed = [&](int64_t size, FitMode mode,
                                  int) { return mode == FitMode::kPlain && size < steady.plain->size ? 80 : 1; }},
                160);
  ASSERT_TRUE(found.split);
  EXPECT_FALSE(found.split->plain && found.split->clear);
  EXPECT_FALSE(found.split->plain && holds(to_text(found), " is fastest as ")) << to_text(found);
}

TEST(Fit, JsonHasEveryFigure) {
  const Family family([](int64_t size) { return sized_step(size); });
  const std::string text = to_json(family.fit({.sizes = fit_sizes(1, 4096), .budget_bytes = 200'000, .effective = 64}));
  for (const char* name : {"\"plain\":{", "\"largest\":{", "\"worthwhile\":{", "\"verdict\":\"",
                           "\"usual_seconds\":", "\"split\":{", "\"runs\":[{"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace remat::test
