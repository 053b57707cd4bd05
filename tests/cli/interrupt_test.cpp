#include "cli/interrupt.h"

#include <csignal>

#include <unistd.h>

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

using ::testing::ExitedWithCode;

// The tests themselves may run where signals are ignored.
void catch_default_signals() {
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
  catch_signals();
}

TEST(InterruptDeathTest, ASignalEndsTheProcessAtOnce) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    EXPECT_EXIT((catch_default_signals(), raise(signal)), ExitedWithCode(128 + signal), "");
  }
}

TEST(InterruptDeathTest, WhatNohupIgnoresStaysIgnored) {
  const auto started_by_nohup = [](int signal) {
    std::signal(signal, SIG_IGN);
    catch_signals();
    raise(signal);
    _exit(0);
  };
  EXPECT_EXIT(started_by_nohup(SIGHUP), ExitedWithCode(0), "");
  EXPECT_EXIT(started_by_nohup(SIGINT), ExitedWithCode(0), "");
  EXPECT_EXIT(started_by_nohup(SIGTERM), ExitedWithCode(128 + SIGTERM), "");
}

TEST(InterruptDeathTest, APoliteStopNotesTheFirst) {
  constexpr int kPause = -1;
  const auto in_training = [](std::initializer_list<int> signals) {
    catch_default_signals();
    const PoliteStop polite;
    for (const int signal : signals) signal == kPause ? usleep(200'000) : raise(signal);
    _exit(interrupted());
  };
  EXPECT_EXIT(in_training({}), ExitedWithCode(0), "");
  EXPECT_EXIT(in_training({SIGTERM}), ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(in_training({SIGINT, SIGPIPE}), ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(in_training({SIGPIPE, SIGPIPE}), ExitedWithCode(SIGPIPE), "");
  EXPECT_EXIT(in_training({SIGINT, kPause, SIGINT}), ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(in_training({SIGTERM, SIGTERM}), ExitedWithCode(SIGTERM), "") << "as `timeout` sends it";
}

TEST(InterruptDeathTest, APoliteStopEnds) {
  const auto after_training = [] {
    catch_signals();
    { const PoliteStop polite; }
    raise(SIGTERM);
  };
  EXPECT_EXIT(after_training(), ExitedWithCode(128 + SIGTERM), "");
}

TEST(InterruptDeathTest, SignalsOfOthersThanTheHeededAreIgnored) {
  const auto heeding = [](pid_t process, int signal) {
    catch_default_signals();
    heed_signals_of(process);
    raise(signal);
    _exit(0);
  };
  EXPECT_EXIT(heeding(getppid(), SIGTERM), ExitedWithCode(0), "");
  EXPECT_EXIT(heeding(getpid(), SIGTERM), ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(heeding(getppid(), SIGPIPE), ExitedWithCode(128 + SIGPIPE), "");
}

}  // namespace
}  // namespace remat::cli
