// Values of a device that move to pinned host memory and come back.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/StreamGuard.h>
#include <remat/planner.h>
#include <remat/remat.h>

#include "device/device_fixture.h"
#include "session/move_tier.h"
#include "support/expect_error.h"
#include "tiers/host_target.h"

namespace remat::simulated {
namespace {

constexpr int64_t kBytes = 64 << 10, kElements = kBytes / 4;

class HostMoves : public DeviceSessionTest {
 protected:
  static torch::Tensor ramp(double factor) {
    return torch::arange(kElements).mul(factor).to(torch::kFloat).view({128, 128}).to(device());
  }

  static std::vector<torch::Tensor> step() {
    const auto weight =
        torch::arange(128 * 128).mul(0.7).sin().mul(0.1).to(torch::kFloat).view({128, 128}).to(device());
    const auto x = ramp(1e-4).requires_grad_();
    auto h = x;
    for (int i = 0; i < 10; ++i) h = torch::tanh(torch::linear(h, weight));
    h.square().sum().backward();
    return {x.grad().cpu()};
  }

  /// The graph of a step, in a session with host memory.
  static Graph recorded() {
    Session session({.device = device(), .host = "64MiB"});
    auto guard = session.step();
    step();
    guard.end();
    return session.graph();
  }

  static Plan all_moved(const Graph& graph) {
    Plan plan;
    plan.planner = "all moved";
    plan.graph_fingerprint = graph.fingerprint();
    for (const GraphValue& value : graph.values) {
      plan.actions.push_back(value.droppable && value.bytes >= kBytes ? Action::kMove : Action::kKeep);
    }
    return plan;
  }
};

TEST_F(HostMoves, CopyInTheOrderOfStreams) {
  set_delay(500);
  const auto target = std::make_shared<tiers::HostTarget>(device(), 4 * kBytes);
  for (int round = 0; round < 20; ++round) {
    auto contents = ramp(1 + round);
    const auto expected = contents.cpu();
    contents = contents * 1;  // made later
    const auto from = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(contents.storage().unsafeGetStorageImpl());
    const auto moved = target->write(from, kBytes);
    ASSERT_TRUE(moved->wait_written());
    contents.fill_(-1);  // what comes after the copy in the stream
    const auto to = target->allocate(kBytes);
    moved->begin_read(to);
    const c10::StreamGuard other(pool_stream(0));  // which waits for the copy
    ASSERT_TRUE(moved->wait_read());
    const auto back = torch::empty({128, 128}, contents.options());
    back.set_(c10::Storage(to), 0, {128, 128}, {128, 1});
    ASSERT_TRUE(torch::equal(back.cpu(), expected)) << round;
  }
  EXPECT_EQ(target->bytes_in_use(), 0);
}

TEST_F(HostMoves, KeepToTheirLimit) {
  const auto target = std::make_shared<tiers::HostTarget>(device(), 2 * kBytes);
  const auto contents = ramp(1);
  const auto from = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(contents.storage().unsafeGetStorageImpl());
  const auto first = target->write(from, kBytes);
  auto second = target->write(from, kBytes);
  const auto third = target->write(from, kBytes);
  EXPECT_TRUE(second->wait_written());
  EXPECT_FALSE(third->wait_written());
  EXPECT_EQ(third->error(),
            "65536 bytes could not be moved to the host: they take 65536, the limit is 131072 bytes, of which 131072 "
            "are in use");
  second.reset();
  EXPECT_EQ(target->bytes_in_use(), 2 * kBytes) << "what has failed is counted until it is gone";
}

TEST_F(HostMoves, KeepToTheirLimitAsThePinnedAllocatorRoundsAndKeeps) {
  at::HostAllocator& pinned = *at::getHostAllocator(device().type());
  pinned.empty_cache();
  const auto taken = [&] { return pinned.get_stats().allocated_bytes.current; };
  const int64_t before = taken();
  auto target = std::make_shared<tiers::HostTarget>(device(), 2 * kBytes);
  const auto contents = ramp(1);
  const auto from = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(contents.storage().unsafeGetStorageImpl());
  auto rounded = target->write(from, kBytes / 2 + 4);
  ASSERT_TRUE(rounded->wait_written());
  EXPECT_EQ(target->bytes_in_use(), kBytes);
  EXPECT_EQ(taken() - before, kBytes);
  rounded.reset();
  for (const int64_t bytes : {2 * kBytes / 8, 2 * kBytes / 4, kBytes}) {  // of each of which a block is kept
    auto moved = target->write(from, bytes);
    EXPECT_TRUE(moved->wait_written());
    EXPECT_LE(taken() - before, 2 * kBytes) << bytes;
  }
  target.reset();
  EXPECT_EQ(taken(), before);
}

TEST_F(HostMoves, HaveTheBitsAndThePeakThatIsPredicted) {
  const auto plain = step();
  const Graph graph = recorded();
  EXPECT_EQ(graph.tier->bytes, 64 << 20);
  EXPECT_GT(graph.tier->costs.out.copy, 0);
  set_delay(300);
  Session session({.device = device(), .verify = true, .plan = all_moved(graph), .host = "64MiB"});
  for (int i = 0; i < 4; ++i) {
    auto guard = session.step();
    const auto outcome = step();
    const StepReport report = guard.end();
    EXPECT_TRUE(torch::equal(outcome[0], plain[0])) << i;
    if (i == 0) continue;
    EXPECT_EQ(report.decided_by, "plan given") << report.decision_reason;
    EXPECT_GE(report.values_moved, 8);
    EXPECT_EQ(report.operators_replayed, 0);
    EXPECT_LE(report.peak_bytes, report.planned_peak_bytes);
    EXPECT_LT(report.activation_peak_bytes(), report.plain_activation_peak_bytes() * 8 / 10);
  }
}

TEST_F(HostMoves, OfAFullHostAreRecomputed) {
  const auto plain = step();
  Session session({.device = device(), .plan = all_moved(recorded()), .host = "200KiB"});
  for (int i = 0; i < 2; ++i) {
    auto guard = session.step();
    const auto outcome = step();
    const StepReport report = guard.end();
    EXPECT_TRUE(torch::equal(outcome[0], plain[0]));
    if (i == 0) continue;
    EXPECT_GT(report.operators_replayed, 0);
  }
}

TEST_F(HostMoves, ChosenByAPlannerFitTheBudget) {
  const auto plain = step();
  Session session({.budget = "50%", .device = device(), .host = "64MiB"});
  int64_t moved = 0;
  for (int i = 0; i < 5; ++i) {
    auto guard = session.step();
    const auto outcome = step();
    const StepReport report = guard.end();
    EXPECT_TRUE(torch::equal(outcome[0], plain[0])) << i;
    EXPECT_LE(report.peak_bytes, report.budget_bytes);
    moved += report.values_moved;
  }
  EXPECT_GT(moved, 0);
}

TEST_F(HostMoves, AreForDevicesWithMemoryOfTheirOwn) {
  EXPECT_ERROR(Session({.host = "1GiB"}), "[session] host memory is where tensors of the cpu device are");
  EXPECT_ERROR(Session({.device = device(), .host = "40%"}), "[session] host memory is to be a number of bytes");
}

}  // namespace
}  // namespace remat::simulated
