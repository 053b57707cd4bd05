// Children of fork(): a session works in them, and steps that were in progress stay the parent's.
#include "support/compare.h"

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "observe/recorder.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

constexpr unsigned kLongest = 60;  // seconds: a child that hangs is killed

/// Runs `work` in a child, and says whether it returned true.
bool in_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLongest);
    bool good = false;
    try {
      good = work();
    } catch (const std::exception& error) {
      static_cast<void>(!write(STDERR_FILENO, error.what(), std::strlen(error.what())));
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Fork : testing::Test {
  nn::Sequential model;
  at::Tensor x = torch::randn({64, 64});
  const int threads = at::get_num_threads();

  Fork() {
    at::set_num_threads(1);  // a child has none but its own
    for (int i = 0; i < 40; ++i) {
      model->push_back(nn::Linear(64, 64));
      model->push_back(nn::GELU());
    }
  }
  ~Fork() override { at::set_num_threads(threads); }

  void train() {
    model->zero_grad();
    model->forward(x).pow(2).mean().backward();
  }
  Outcome result() {
    Outcome outcome;
    outcome.add_module(*model);
    return outcome;
  }
  Outcome plain_step() {
    train();
    return result();
  }
  Outcome step(Session& session) {
    {
      auto step = session.step();
      train();
    }
    return result();
  }
};

bool same(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (!same_bits(a.tensors[i].second, b.tensors[i].second)) return false;
  }
  return a.tensors.size() == b.tensors.size();
}

TEST_F(Fork, ASessionPlansAnewInAChildThatWasForkedWhileItSearched) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator stays locked in a child that was forked while a thread allocated";
#endif
  const Outcome plain = plain_step();
  Session session({.budget = Budget::percent(50)});
  for (int i = 0; i < 2; ++i) step(session);
  const auto goes_on = [&] {
    for (int i = 0; i < 3; ++i) {
      if (!same(step(session), plain)) return false;
    }
    return session.report().completed && session.report().planned_peak_bytes > 0 && session.report().values_dropped > 0;
  };
  EXPECT_TRUE(in_child(goes_on));
  EXPECT_TRUE(goes_on());
}

TEST_F(Fork, ASessionThatAChildDoesNotUseEndsThere) {
  auto session = std::make_unique<Session>(SessionOptions{.budget = Budget::percent(50)});
  for (int i = 0; i < 2; ++i) step(*session);
  EXPECT_TRUE(in_child([&] { return session.reset(), true; }));
}

TEST_F(Fork, AChildOfAnOpenStepRecordsNothingAndHasNoLimit) {
  const Outcome plain = plain_step();
  model->zero_grad();
  memory::start_accounting();
  Session session({.budget = Budget::bytes(memory::current() + (int64_t{4} << 20))});
  auto open = session.step();
  auto loss = model->forward(x).pow(2).mean();
  EXPECT_TRUE(in_child([&] {
    if (Recorder::current() != nullptr || !open.has_ended()) return false;
    const auto large = torch::ones({int64_t{8} << 20}, torch::requires_grad()).exp();
    return Recorder::current() == nullptr && memory::limit() > memory::current();
  }));
  EXPECT_TRUE(in_child([&] {
    if (!same(step(session), plain)) return false;
    open.end();
    return same(step(session), plain) && session.report().completed;
  }));
  EXPECT_FALSE(open.has_ended());
  loss.backward();
  EXPECT_TRUE(open.end().completed);
  expect_same_bits(plain, result(), "the parent");
}

}  // namespace
}  // namespace remat::test
