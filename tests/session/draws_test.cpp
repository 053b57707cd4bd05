// Random operators whose generator others use too.
#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include "support/compare.h"
#include "support/kernels.h"

namespace remat::test {
namespace {

/// Steps with dropouts that are recomputed. The gradient of each is its result in the forward pass.
void train(std::atomic<int64_t>& dropped) {
  Session session;
  const auto x = torch::ones({64, 64});
  for (int i = 0; i < 20; ++i) {
    std::vector<at::Tensor> weights, results;
    auto step = session.step();
    const PolicyScope scope(Policy::drop_all());
    auto loss = torch::zeros({});
    for (int layer = 0; layer < 10; ++layer) {
      weights.push_back(torch::ones({64, 64}).requires_grad_());
      const auto h = torch::dropout(x * 2, 0.5, /*train=*/true);
      results.push_back(h.clone());
      loss = loss + (h * weights.back()).sum();
    }
    try {
      loss.backward();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      return;
    }
    dropped += step.end().values_dropped;
    for (size_t layer = 0; layer < 10; ++layer) {
      ASSERT_TRUE(same_bits(weights[layer].grad(), results[layer])) << "step " << i << ", layer " << layer;
    }
  }
}

TEST(Draws, OfAThreadThatRecordsNothingDoNotComeBetween) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) torch::rand({1});
  });
  std::atomic<int64_t> dropped = 0;
  train(dropped);
  stop = true;
  other.join();
  EXPECT_GT(dropped, 0);
}

TEST(Draws, OfSeveralSessionsDoNotComeBetween) {
  std::atomic<int64_t> dropped = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { train(dropped); });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(dropped, 0);
}

std::atomic<int> g_extra_draws = 0;

std::barrier g_meeting(2);

TORCH_LIBRARY(remat_draws, m) {
  m.def("noise(Tensor x) -> Tensor");
  m.def("meet(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(remat_draws, CPU, m) {
  m.impl("meet", [](const at::Tensor& x) -> at::Tensor {
    g_meeting.arrive_and_wait();
    return x.clone();
  });
  m.impl("noise", [](const at::Tensor& x) -> at::Tensor {
    auto* const generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    for (int i = 0; i < g_extra_draws; ++i) generator->random();
    auto result = at::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      result.data_ptr<float>()[i] = static_cast<float>(generator->random() % 1000) / 1000;
    }
    return result;
  });
}

at::Tensor loss_with_noise(const at::Tensor& w) {
  return (call("remat_draws::noise", torch::ones({32, 32})) * w).sum();
}

/// As an all-reduce among threads does. It cannot be told from an operator that draws, which others would wait for.
TEST(Draws, OfAnOperatorInWhichThreadsMeetAreWaitedForOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto work = [] {
    Session session;
    const auto w = torch::ones({32, 32}).requires_grad_();
    for (int i = 0; i < 20; ++i) {
      auto step = session.step();
      const auto met = call("remat_draws::meet", torch::full({32, 32}, static_cast<double>(i)));
      (torch::dropout(met, 0.5, /*train=*/true) * met * w).sum().backward();
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "2 seconds for each of 20 meetings?";
}

/// As where another thread draws without an operator.
TEST(Draws, ThatAReplayDoesNotRepeatAreAnError) {
  for (const int extra : {0, 1}) {
    const auto w = torch::ones({32, 32}).requires_grad_();
    Session session;
    auto step = session.step();
    at::Tensor loss;
    {
      const PolicyScope scope(Policy::drop_all());
      loss = loss_with_noise(w);
    }
    const auto before = at::detail::getDefaultCPUGenerator().get_state();
    g_extra_draws = extra;
    try {
      loss.backward();
      EXPECT_EQ(extra, 0) << "another result was taken for the same";
    } catch (const Error& error) {
      EXPECT_EQ(extra, 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("noise drew other random numbers than in the forward pass"),
                std::string::npos)
          << error.what();
    }
    g_extra_draws = 0;
    EXPECT_TRUE(same_bits(before, at::detail::getDefaultCPUGenerator().get_state()));
    EXPECT_GT(step.end().values_dropped, 0);
  }
}

}  // namespace
}  // namespace remat::test
