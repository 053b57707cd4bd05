// Steps of remat on the simulated device: what its record copies, looks at and counts there.
#include <chrono>
#include <thread>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <remat/remat.h>

#include "device/device_fixture.h"

namespace remat::simulated {
namespace {

class DeviceSteps : public DeviceSessionTest {
 protected:
  static Session session(SessionOptions options = {}) {
    options.device = device();
    return Session(std::move(options));
  }
};

torch::Tensor leaf(at::IntArrayRef sizes, double factor = 0.7) {
  return torch::arange(c10::multiply_integers(sizes)).mul(factor).sin().to(torch::kFloat).view(sizes).to(device());
}

/// What is queued on `stream` from now on begins later.
void stall(const c10::Stream& stream) {
  WorkQueue::of(stream).submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
}

void wait_for(const c10::Stream& other, const c10::Stream& stream) {
  c10::Event reached(c10::kPrivateUse1);
  reached.record(other);
  reached.block(stream);
}

TEST_F(DeviceSteps, VerifyLooksAtWhatIsEvictedWhereASavedTensorEnds) {
  const auto x = leaf({16}).requires_grad_();
  const auto run = [&] {
    auto other = x.cos();
    auto y = x.sin();
    const auto z = y * y;
    y.reset();
    other.reset();  // its saved tensor's end is when y is evicted, with the tape locked
    return torch::autograd::grad({z.sum()}, {x})[0].cpu();
  };
  const auto plain = run();
  auto ours = session({.verify = true});
  auto step = ours.step();
  const PolicyScope drop(Policy::drop_all());
  EXPECT_TRUE(torch::equal(run(), plain));
  EXPECT_EQ(step.end().values_dropped, 1);
}

TEST_F(DeviceSteps, RecordStreamWritesToNothing) {
  const auto weight = leaf({16}).requires_grad_();
  auto ours = session();
  auto step = ours.step();
  const PolicyScope drop(Policy::drop_all());
  auto x = weight * 2;
  auto y = x.sin();  // a replay reads x
  const int64_t before = memory::current(device());
  for (const auto& tensor : {weight, x, y}) tensor.record_stream(pool_stream(0));
  EXPECT_EQ(memory::current(device()), before) << "a copy of what seemed to be written to";
  const auto loss = (y * y).sum();
  x.reset();
  y.reset();
  loss.backward();
  const StepReport report = step.end();
  EXPECT_EQ(report.values_dropped, 2);
  EXPECT_GT(report.operators_replayed, 0);
}

TEST_F(DeviceSteps, PlainsAccountHasNothingOfTheCpus) {
  const auto weight = leaf({64, 64}).requires_grad_();
  const auto run = [&](torch::Tensor batch) {
    auto x = batch.to(device());
    batch.reset();  // the record keeps it, to make x again; plain has freed it
    for (int i = 0; i < 3; ++i) x = torch::linear(x, weight).tanh();
    x.sum().backward();
    weight.mutable_grad().reset();
  };
  const int64_t before = memory::current(device());
  memory::reset_peak(device());
  run(torch::ones({256, 64}));
  const int64_t plain = memory::peak(device()) - before;
  for (const char* planner : {"online", "auto"}) {
    auto ours = session({.planner = planner});
    int64_t peak = 0;
    for (int i = 0; i < 2; ++i) {
      auto batch = torch::ones({256, 64});
      auto step = ours.step();
      run(std::move(batch));
      const StepReport report = step.end();
      EXPECT_EQ(report.plain_peak_bytes - report.baseline_bytes, plain);
      EXPECT_LE(report.peak_bytes - report.baseline_bytes, plain + 4096) << "more than checksums take";
      peak = report.peak_bytes - report.baseline_bytes;
    }
    if (planner != std::string("auto")) continue;
    // The graph that plans are made of has the same peak.
    const Graph graph = ours.graph();
    EXPECT_EQ(predict(graph, std::vector<Action>(graph.values.size())).peak_bytes - graph.baseline_bytes, peak);
  }
}

TEST_F(DeviceSteps, ReplaysWaitForTheCopyOfALeafThatWasWrittenTo) {
  const c10::Stream main = default_stream(0);
  const c10::Stream side = pool_stream(0);
  const auto weight = leaf({1024}).requires_grad_();
  const auto run = [&](const torch::Tensor& buffer) {
    const auto input = weight * 1;
    wait_for(main, side);
    torch::Tensor loss;
    {
      const c10::StreamGuard guard(side);
      loss = (input + buffer).sin().sum();
    }
    wait_for(side, main);
    stall(main);
    buffer.add_(1);  // its copy for replays is made on this stream, too: later
    const c10::StreamGuard guard(side);
    return torch::autograd::grad({loss}, {input})[0].cpu();
  };
  const auto plain = run(leaf({1024}, 0.3));
  auto ours = session();
  const auto buffer = leaf({1024}, 0.3);
  auto step = ours.step();
  const PolicyScope drop(Policy::drop_all());
  EXPECT_TRUE(torch::equal(run(buffer), plain));
  EXPECT_GT(step.end().operators_replayed, 0);
}

TEST_F(DeviceSteps, MemoryThatAReplayReadsOnAnotherStreamIsNotReusedEarly) {
  const c10::Stream main = default_stream(0);
  const c10::Stream side = pool_stream(0);
  const auto weight = leaf({1024}).requires_grad_();
  const auto run = [&] {
    auto other = weight.detach() * 2;
    wait_for(main, side);
    torch::Tensor input, loss;
    {
      const c10::StreamGuard guard(side);
      input = weight * 1;
      loss = (input + other).sin().sum();
    }
    wait_for(side, main);
    torch::Tensor gradient;
    {
      const c10::StreamGuard guard(side);
      stall(side);
      gradient = torch::autograd::grad({loss}, {input})[0];  // the replay reads `other` when the stream is there
    }
    other.reset();
    std::vector<torch::Tensor> next(64);  // one of them has its memory, in plain
    for (auto& tensor : next) tensor = torch::full({1024}, 5.0, device());
    synchronize_device(0);
    return gradient.cpu();
  };
  const auto plain = run();
  auto ours = session();
  auto step = ours.step();
  const PolicyScope drop(Policy::drop_all());
  EXPECT_TRUE(torch::equal(run(), plain));
  EXPECT_GT(step.end().operators_replayed, 0);
}

}  // namespace
}  // namespace remat::simulated
