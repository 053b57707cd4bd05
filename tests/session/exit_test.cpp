// What is left when a process or a thread ends: steps and sessions in static objects, operators in functions of
// atexit().
#include <cstdlib>
#include <optional>
#include <thread>

#include <c10/core/CPUAllocator.h>

#include "support/compare.h"

namespace remat::test {
namespace {

using testing::ExitedWithCode;

at::Tensor train() {
  const auto w = torch::randn({32, 32}).requires_grad_();
  const auto loss = torch::randn({32, 32}).mm(w).tanh().sum();
  loss.backward();
  return loss;
}

struct Trainer {
  std::optional<Session> session;
  std::optional<Step> step;

  void begin() {
    session.emplace();
    step.emplace(session->step());
    train();
  }
};

Trainer g_trainer;
thread_local Trainer t_trainer;
at::Tensor g_loss;

/// Ends processes of their own, begun anew: a fork would bring this one's threads and static objects along.
struct ExitDeathTest : testing::Test {
  ExitDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ExitDeathTest, AStepInAStaticObjectEndsAfterItsThread) {
  EXPECT_EXIT((g_trainer.begin(), std::exit(0)), ExitedWithCode(0), "");
}

TEST_F(ExitDeathTest, AStepInAnObjectOfAThread) {
  EXPECT_EXIT((std::thread([] { t_trainer.begin(); }).join(), train(), std::exit(0)), ExitedWithCode(0), "");
}

/// The first of the thread: PyTorch's autograd has no second one there.
TEST_F(ExitDeathTest, BackwardInAFunctionOfAtExit) {
  const auto run = [] {
    g_trainer.session.emplace();
    g_trainer.step.emplace(g_trainer.session->step());
    g_loss = torch::randn({32, 32}).requires_grad_().tanh().sum();
    std::atexit([] { g_loss.backward(); });
    std::exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(0), "");
}

TEST_F(ExitDeathTest, NoStepBeginsInTheDestructorOfAStaticObject) {
  struct Late {
    Session session;
    ~Late() {
      try {
        const Step step = session.step();
      } catch (const Error& error) {
        std::_Exit(std::string(error.what()).starts_with("[session] this thread has ended") ? 7 : 8);
      }
    }
  };
  const auto run = [] {
    static Late late;
    train();
    std::exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(7), "");
}

/// Takes the place of remat's allocator, and passes everything on to it.
struct Wrapping : c10::Allocator {
  c10::Allocator* inner = c10::GetCPUAllocator();
  c10::DataPtr allocate(size_t bytes) override { return inner->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return inner->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

TEST_F(ExitDeathTest, AStepUnderAnotherAllocatorIsRefused) {
  const auto run = [] {
    Session session({.budget = "8MiB"});
    session.step().end();
    static Wrapping other;
    c10::SetCPUAllocator(&other, 255);
    try {
      const Step step = session.step();
    } catch (const Error& error) {
      std::_Exit(std::string(error.what()).starts_with("[start_accounting] another library") ? 7 : 8);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(7), "");
}

}  // namespace
}  // namespace remat::test
