// Plans that are saved and given, and the planner that a session is told to use.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

TEST(PlannedSteps, ASavedPlanReplacesItsFileAndNoOther) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / ("remat-save-plan-" + std::to_string(getpid()));
  fs::create_directory(directory);
  const fs::path path = directory / "plan.json", link = directory / "link";
  const auto read = [](const fs::path& place) {
    std::ifstream file(place);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::vector<fs::path> others = {path.string() + ".tmp", path.string() + ".part-" + std::to_string(getpid())};
  for (const auto& other : others) std::ofstream(other) << "theirs";
  fs::create_symlink("plan.json", link);
  fs::create_symlink("nothing", directory / "dangling");

  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  loop.in(session);
  loop.in(session);
  session.save_plan(path);
  EXPECT_EQ(read(path), to_json(session.plan()));
  std::ofstream(path) << "old";
  session.save_plan(link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read(path), to_json(session.plan()));
  for (const auto& other : others) EXPECT_EQ(read(other), "theirs") << other;
  EXPECT_THROW(session.save_plan(directory), Error);
  EXPECT_THROW(session.save_plan(directory / "dangling"), Error);
  EXPECT_TRUE(fs::is_symlink(directory / "dangling"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 5);
  fs::remove_all(directory);
}

TEST(PlannedSteps, FollowAPlanThatWasSaved) {
  Loop loop;
  const StepReport plain = loop.measure();
  const std::string path = testing::TempDir() + "remat-step-planner-test.plan.json";
  {
    Session session({.budget = share_of(plain, 60)});
    EXPECT_THROW(session.save_plan(path), Error) << "no step yet";
    loop.in(session);
    EXPECT_THROW(static_cast<void>(session.plan()), Error) << "the first step is recorded";
    loop.in(session);
    session.save_plan(path);
    EXPECT_EQ(session.plan().planner, "auto");
    EXPECT_THROW(session.save_plan("/nowhere/plan.json"), Error);
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::remove(path.c_str());
  Plan plan = plan_from_json(text);
  plan.planner = "mine";
  {
    Session session({.budget = share_of(plain, 60), .planner = "online", .plan = plan});
    EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
    EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
    EXPECT_EQ(session.plan().planner, "mine");
    EXPECT_EQ(session.plan().actions, plan.actions);
  }
  {
    Session session({.budget = share_of(plain, 40), .plan = plan});  // too small for it
    loop.in(session);
    EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
    EXPECT_EQ(session.plan().planner, "auto");
  }
  plan.graph_fingerprint += 1;  // another graph's
  Session session({.budget = share_of(plain, 60), .plan = plan});
  loop.in(session);
  loop.in(session);
  EXPECT_EQ(session.plan().planner, "auto");
}

TEST(PlannedSteps, FollowAnyPlanner) {
  Loop loop;
  Session session({.planner = "drop-all"});
  loop.in(session);
  const StepReport report = loop.in(session);
  EXPECT_GT(report.planned_peak_bytes, 0);
  EXPECT_GE(report.values_dropped, report.values_saved / 2);
}

TEST(PlannedSteps, AreNoneWithTheOnlinePlanner) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60), .planner = "online"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
  EXPECT_THROW(session.graph(), Error);
}

std::string decision(const StepReport& report) { return report.decided_by + ": " + report.decision_reason; }

TEST(PlannedSteps, SayWhoDecidedAndWhyNotThePlanGiven) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session first({.budget = share_of(plain, 60)});
  EXPECT_EQ(decision(loop.in(first)), "online: the first step is recorded");
  EXPECT_EQ(decision(loop.in(first)), "auto: ");
  const Plan plan = first.plan();
  loop.in(first);
  loop.depth = 9;
  EXPECT_EQ(decision(loop.in(first)), "auto: the plan is that of a step that ran some operators more or fewer");
  loop.depth = 12;

  Session given({.budget = share_of(plain, 60), .planner = "online", .plan = plan});
  EXPECT_EQ(decision(loop.in(given)), "online: the first step is recorded");
  EXPECT_EQ(decision(loop.in(given)), "plan given: ");

  Plan other = plan;
  other.graph_fingerprint += 1;
  Session ignoring({.budget = share_of(plain, 60), .plan = other});
  EXPECT_EQ(decision(loop.in(ignoring)), "online: the plan given is of another graph");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(decision(loop.in(ignoring)), "auto: the plan given is of another graph") << i;

  Session small({.budget = share_of(plain, 40), .planner = "online", .plan = plan});
  loop.in(small);
  for (int i = 0; i < 6; ++i) {
    const std::string text = decision(loop.in(small));
    EXPECT_EQ(text.rfind("online: the plan given takes ", 0), 0u) << text;
    const int64_t left = share_of(plain, 40).byte_count() - small.report().baseline_bytes;
    EXPECT_TRUE(text.ends_with("the budget leaves " + format_exact_bytes(left))) << text;
  }

  Session online({.budget = share_of(plain, 60), .planner = "online"});
  loop.in(online);
  EXPECT_EQ(decision(loop.in(online)), "online: ");
}

TEST(PlannedSteps, UnknownPlannersAreRefused) {
  try {
    const Session session({.planner = "best"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[session] there is no planner \"best\"; there are online, auto, keep-all, drop-all, "
                 "segments, articulation-memory, articulation-speed, selective, revolve, rotor");
  }
}

}  // namespace
}  // namespace remat::test
