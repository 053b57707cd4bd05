#include "session/rank_agreement.h"

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <remat/error.h>

#include "plan/sample_graph.h"

namespace remat {
namespace {

/// Threads as ranks.
class Gathering {
 public:
  explicit Gathering(int ranks) : given_(static_cast<size_t>(ranks)), barrier_(ranks) {}

  Ranks ranks_of(int rank) {
    return {.rank = rank, .gather = [this, rank](const std::vector<int64_t>& mine) {
              given_[static_cast<size_t>(rank)] = mine;
              barrier_.arrive_and_wait();
              auto all = given_;
              barrier_.arrive_and_wait();
              return all;
            }};
  }

 private:
  std::vector<std::vector<int64_t>> given_;
  std::barrier<> barrier_;
};

void on_ranks(int count, const std::function<void(int rank, RankAgreement&)>& body) {
  Gathering gathering(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      RankAgreement agreement(gathering.ranks_of(rank));
      body(rank, agreement);
    });
  }
  for (auto& thread : threads) thread.join();
}

int64_t begin(RankAgreement& agreement, int64_t room = 100) {
  bool traces = false;
  return agreement.begin(room, traces, {});
}

template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

constexpr RankAgreement::Refusal kRefusal{.budget_bytes = 1000, .lower_bound_bytes = 1500, .needed_bytes = 2000};

TEST(RankAgreement, OneThatIsRefusedMemoryEndsTheStepsOfAllBeforeTheirNextCollective) {
  on_ranks(3, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    agreement.before_collective("c10d::allreduce_");
    if (rank == 1) {
      agreement.end({.refusal = kRefusal});
    } else {
      try {
        agreement.before_collective("c10d::allreduce_");
        ADD_FAILURE() << "rank " << rank << " was not told";
      } catch (const BudgetError& error) {
        EXPECT_EQ(error.needed_bytes(), 2000);
        EXPECT_EQ(error.budget_bytes(), 1000);
        EXPECT_EQ(error.lower_bound_bytes(), 1500);
        EXPECT_NE(std::string(error.what()).find("rank 1 is out of memory"), std::string::npos) << error.what();
      }
      EXPECT_THROW(agreement.before_collective("c10d::broadcast_"), BudgetError) << "caught, and going on";
      EXPECT_THROW(agreement.end({.completed = true}), BudgetError);
    }
    begin(agreement);  // and the next step is as any other
    agreement.before_collective("c10d::allreduce_");
    agreement.end({.completed = true});
  });
}

TEST(RankAgreement, OneThatIsRefusedAfterTheLastCollectiveIsToldOfAtTheEnd) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    if (rank == 0) {
      agreement.end({.refusal = kRefusal});
    } else {
      EXPECT_THROW(agreement.end({.completed = true}), BudgetError);
    }
    begin(agreement);
    agreement.end({.completed = true});
  });
}

TEST(RankAgreement, OneThatIsRefusedAsItBeginsIsToldOfThere) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    bool traces = false;
    if (rank == 0) {
      agreement.begin(0, traces, kRefusal);
    } else {
      EXPECT_THROW(begin(agreement), BudgetError);
    }
    begin(agreement);
    agreement.end({.completed = true});
  });
}

TEST(RankAgreement, ABudgetThatOneRefusesIsRefusedOnAllAndStepsGoOn) {
  on_ranks(3, [](int rank, RankAgreement& agreement) {
    agreement.change_budget({});
    begin(agreement);
    agreement.end({.completed = true});
    if (rank == 1) {
      agreement.change_budget(kRefusal);
    } else {
      const std::string message = message_of<BudgetError>([&] { agreement.change_budget({}); });
      EXPECT_NE(message.find("rank 1 cannot do with its new budget"), std::string::npos) << message;
    }
    agreement.before_collective("c10d::allreduce_");  // of no step
    begin(agreement);
    agreement.before_collective("c10d::allreduce_");
    agreement.end({.completed = true});
  });
}

TEST(RankAgreement, ABudgetThatNotAllChangeIsAnError) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    agreement.end({.completed = true});
    const std::string message = message_of<Error>([&] {
      if (rank == 0) {
        agreement.change_budget({});
      } else {
        begin(agreement);
      }
    });
    EXPECT_NE(message.find("at a change of the budget after step 1"), std::string::npos) << message;
  });
}

TEST(RankAgreement, TheLargestNumberIsNamed) {
  on_ranks(3, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    RankAgreement::Refusal own = kRefusal;
    own.needed_bytes += rank;
    if (rank > 0) return (void)agreement.end({.refusal = own});
    const std::string message = message_of<BudgetError>([&] { agreement.before_collective("c10d::allreduce_"); });
    EXPECT_NE(message.find("rank 2 is out of memory"), std::string::npos) << message;
  });
}

TEST(RankAgreement, OneThatFailsOtherwiseIsToldOfToo) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    if (rank == 0) return (void)agreement.end({});
    const std::string message = message_of<Error>([&] { agreement.before_collective("c10d::allreduce_"); });
    EXPECT_NE(message.find("rank 0 left step 1 without completing it"), std::string::npos) << message;
  });
}

TEST(RankAgreement, OtherCollectivesAreAnErrorOnAll) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    const std::string message = message_of<Error>([&] {
      if (rank == 0) return agreement.before_collective("c10d::allreduce_");
      agreement.end({.completed = true});
    });
    EXPECT_NE(message.find("before collective 1 of step 1"), std::string::npos) << message;
    EXPECT_NE(message.find("at the end of step 1"), std::string::npos) << message;
  });
}

TEST(RankAgreement, ACollectiveOfAnotherKindIsAnErrorOnAll) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    begin(agreement);
    const char* const name = rank == 0 ? "c10d::allreduce_" : "c10d::broadcast_";
    const std::string message = message_of<Error>([&] { agreement.before_collective(name); });
    EXPECT_NE(message.find(std::string("before collective 1 of step 1 (") + name), std::string::npos) << message;
    EXPECT_NE(message.find(std::string("before collective 1 of step 1 (not ") + name), std::string::npos) << message;
  });
}

TEST(RankAgreement, OneThatHasGoneIsAnError) {
  RankAgreement agreement({.rank = 0, .gather = [](const std::vector<int64_t>&) -> std::vector<std::vector<int64_t>> {
                             throw std::runtime_error("connection closed");
                           }});
  const std::string message = message_of<Error>([&] { begin(agreement); });
  EXPECT_NE(message.find("connection closed"), std::string::npos) << message;
  EXPECT_THROW(agreement.before_collective("c10d::allreduce_"), Error);
}

TEST(RankAgreement, OneThatRecordsMakesAllRecord) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    bool traces = rank == 1;
    agreement.begin(0, traces, {});
    EXPECT_TRUE(traces);
  });
}

TEST(RankAgreement, WhereTheGraphIsTheSameTheLeastRoomAndTheLongestTimesAreAllRanks) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    Graph graph = chain_graph(4);
    graph.operators[0].seconds = rank == 0 ? 1 : 3;
    graph.operators[1].seconds = rank == 0 ? 4 : 2;
    graph.step_seconds = rank == 0 ? 10 : 11;
    graph.values[0].packed_bytes = rank == 0 ? 1 : 2;
    graph.values[1].packed_bytes = rank == 0 ? 0 : 2;  // it cannot be packed on rank 0
    const double slow = rank == 0 ? 3e-9 : 1e-9, fast = 1e-9;
    graph.tier = Tier{.costs = {{0, slow}, {0, fast}}, .copy_seconds = slow, .bytes = rank == 0 ? 900 : 800};
    const int64_t room = rank == 0 ? 70 : 50;
    EXPECT_EQ(begin(agreement, room), room) << "no graph is known yet";
    const auto agreed = agreement.end({.completed = true, .graph = &graph, .changed = rank == 1, .room = room});
    EXPECT_EQ(agreed.room, 50);
    EXPECT_TRUE(agreed.changed);
    EXPECT_EQ(graph.operators[0].seconds, 3);
    EXPECT_EQ(graph.operators[1].seconds, 4);
    EXPECT_EQ(graph.step_seconds, 11);
    EXPECT_EQ(graph.values[0].packed_bytes, 2);
    EXPECT_EQ(graph.values[1].packed_bytes, 0);
    EXPECT_EQ(graph.tier, (Tier{.costs = {{0, 3e-9}, {0, 1e-9}}, .copy_seconds = 3e-9, .bytes = 800}));
    EXPECT_EQ(begin(agreement, rank == 0 ? 80 : 90), 80);
  });
}

TEST(RankAgreement, ValuesAreMovedWhereAllRanksHaveADisk) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    Graph graph = chain_graph(4);
    if (rank == 1) graph.tier = Tier{.costs = {}, .bytes = 800};
    begin(agreement, 70);
    agreement.end({.completed = true, .graph = &graph, .changed = false, .room = 70});
    EXPECT_EQ(graph.tier, std::nullopt);
  });
}

TEST(RankAgreement, WhereGraphsDifferEachRankPlansForItself) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    Graph graph = chain_graph(4 + rank);
    const double seconds = graph.operators[0].seconds;
    const int64_t own = rank == 0 ? 70 : 50;
    begin(agreement, own);
    const auto agreed = agreement.end({.completed = true, .graph = &graph, .changed = rank == 1, .room = own});
    EXPECT_EQ(agreed.room, own);
    EXPECT_EQ(agreed.changed, rank == 1);
    EXPECT_EQ(graph.operators[0].seconds, seconds);
    EXPECT_EQ(begin(agreement, own), own);
  });
}

/// A schedule for a chain of so many operators, and a step of it in which each took `seconds` but for the first, which
/// did not run.
FollowedTimes followed_times(int operators, double seconds) {
  auto schedule = std::make_shared<Schedule>();
  schedule->graph = chain_graph(operators);
  std::vector<double> all(schedule->graph.operators.size(), seconds);
  all.front() = -1;
  return {.schedule = std::move(schedule), .seconds = std::move(all)};
}

TEST(RankAgreement, WhereTheScheduleIsTheSameItsOperatorsHaveTheLongestTimesOfAllRanks) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    FollowedTimes times = followed_times(4, 1 + rank);
    const int64_t room = rank == 0 ? 70 : 50;
    begin(agreement, room);
    EXPECT_EQ(agreement.end({.completed = true, .followed = &times, .room = room}).room, 50);
    EXPECT_EQ(times.seconds.front(), -1);
    EXPECT_EQ(times.seconds.back(), 2);
  });
}

TEST(RankAgreement, WhereSchedulesDifferEachRankKeepsItsTimes) {
  on_ranks(2, [](int rank, RankAgreement& agreement) {
    FollowedTimes times = followed_times(4 + rank, 1 + rank);
    const int64_t room = rank == 0 ? 70 : 50;
    for (FollowedTimes* own : {rank == 0 ? &times : nullptr, &times}) {
      begin(agreement, room);
      EXPECT_EQ(agreement.end({.completed = true, .followed = own, .room = room}).room, room);
    }
    EXPECT_EQ(times.seconds.back(), 1 + rank);
  });
}

}  // namespace
}  // namespace remat
